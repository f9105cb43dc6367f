/* SPDX-License-Identifier: MIT */
/*
 * DT_VERSYM gives each symbol a number; DT_VERNEED tells the meaning of the numbers that an object
 * needs, and DT_VERDEF of those that it defines. Bit 15 of a definition's number hides it from a
 * look-up without a version. An object without DT_VERSYM defines every version.
 */
#include "shim/bind/symbol_version.h"

#include <stddef.h>

#include "shim/bind/early.h"

enum {
	HIDDEN = 0x8000,
	GLOBAL = 1, /* the number of symbols without a version */
};

struct versions {
	const ElfW(Half) * numbers; /* NULL: none */
	const ElfW(Verneed) * needed;
	const ElfW(Verdef) * defined;
};

static const void *
turned(const struct ca_object *object, uintptr_t value)
{
	return (const void *)(value < object->base ? value + object->base : value);
}

static struct versions
read_versions(const struct ca_object *object)
{
	struct versions versions = { 0 };

	for (const ElfW(Dyn) *d = object->dynamic; d->d_tag != DT_NULL; d++) {
		if (d->d_tag == DT_VERSYM)
			versions.numbers = turned(object, d->d_un.d_ptr);
		else if (d->d_tag == DT_VERNEED)
			versions.needed = turned(object, d->d_un.d_ptr);
		else if (d->d_tag == DT_VERDEF)
			versions.defined = turned(object, d->d_un.d_ptr);
	}
	return versions;
}

static const char *
name_needed(const struct ca_object *object, const struct versions *versions, unsigned number)
{
	const char *need = (const char *)versions->needed;

	while (need) {
		const ElfW(Verneed) *n = (const ElfW(Verneed) *)need;
		const char *at = need + n->vn_aux;

		for (unsigned i = 0; i < n->vn_cnt; i++) {
			const ElfW(Vernaux) *a = (const ElfW(Vernaux) *)at;

			if (a->vna_other == number)
				return object->strings + a->vna_name;
			at += a->vna_next;
		}
		need = n->vn_next ? need + n->vn_next : NULL;
	}
	return NULL;
}

static const char *
name_defined(const struct ca_object *object, const struct versions *versions, unsigned number)
{
	const char *at = (const char *)versions->defined;

	while (at) {
		const ElfW(Verdef) *d = (const ElfW(Verdef) *)at;
		const ElfW(Verdaux) *first = (const ElfW(Verdaux) *)(at + d->vd_aux);

		if (d->vd_ndx == number)
			return object->strings + first->vda_name;
		at = d->vd_next ? at + d->vd_next : NULL;
	}
	return NULL;
}

struct search {
	const char *name;
	const char *version; /* NULL: any that is not hidden */
	uintptr_t address;   /* of the first */
	unsigned n;
	/* which is there from the start; an object that is opened later comes behind it */
	bool passed_libc;
	bool from_start; /* so was the first */
};

static bool
is_match(const struct search *search, const struct ca_object *object,
	 const struct versions *versions, uint32_t index)
{
	const ElfW(Sym) *s = &object->symbols[index];
	unsigned number = versions->numbers ? versions->numbers[index] : GLOBAL;
	const char *version;

	if (s->st_shndx == SHN_UNDEF || !s->st_value || ELF64_ST_TYPE(s->st_info) != STT_FUNC ||
	    !ca_early_equal(object->strings + s->st_name, search->name))
		return false;
	if (!search->version || !versions->numbers)
		return !(number & HIDDEN);
	version = name_defined(object, versions, number & ~(unsigned)HIDDEN);
	return version && ca_early_equal(version, search->version);
}

static uint32_t
gnu_hash(const char *name)
{
	uint32_t hash = 5381;

	for (const unsigned char *c = (const unsigned char *)name; *c; c++)
		hash = hash * 33 + *c;
	return hash;
}

/* The index of the symbol in the object's table, 0: none. */
static uint32_t
find_in(const struct search *search, const struct ca_object *object)
{
	struct versions versions = read_versions(object);
	const uint32_t *table = object->gnu_hash, *buckets, *chain;
	uint32_t hash = gnu_hash(search->name), i;

	if (!table) { /* the System V table has one entry for each symbol */
		for (i = 1; object->sysv_hash && i < object->sysv_hash[1]; i++)
			if (is_match(search, object, &versions, i))
				return i;
		return 0;
	}
	buckets = table + 4 + table[2] * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
	chain = buckets + table[0];
	if (!table[0] || buckets[hash % table[0]] < table[1])
		return 0;
	for (i = buckets[hash % table[0]];; i++) {
		uint32_t link = chain[i - table[1]];

		if ((link | 1) == (hash | 1) && is_match(search, object, &versions, i))
			return i;
		if (link & 1)
			return 0;
	}
}

static bool
visit_definition(const struct ca_object *object, void *arg)
{
	struct search *search = arg;
	uint32_t index;

	if (!object->symbols || !object->strings)
		return false;
	search->passed_libc |= ca_early_starts_with(object->soname, "libc.so.");
	index = find_in(search, object);
	if (index && !search->n++) {
		search->address = object->base + object->symbols[index].st_value;
		search->from_start = !search->passed_libc;
	}
	return false;
}

uintptr_t
ca_version_definition(const struct ca_object *object, uint32_t symbol, bool *ret_unclear)
{
	struct versions versions = read_versions(object);
	struct search search = { .name = object->strings + object->symbols[symbol].st_name };
	unsigned number = versions.numbers ? versions.numbers[symbol] & ~(unsigned)HIDDEN : GLOBAL;

	if (number > GLOBAL)
		search.version = name_needed(object, &versions, number);
	ca_object_walk(visit_definition, &search);
	*ret_unclear = search.n > 1 && !search.from_start;
	return *ret_unclear ? 0 : search.address;
}
