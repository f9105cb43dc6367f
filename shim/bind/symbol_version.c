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

static struct versions
read_versions(const struct ca_object *object)
{
	struct versions versions = { 0 };

	for (const ElfW(Dyn) *d = object->dynamic; d->d_tag != DT_NULL; d++) {
		if (d->d_tag == DT_VERSYM)
			versions.numbers = ca_object_address(object, d->d_un.d_ptr);
		else if (d->d_tag == DT_VERNEED)
			versions.needed = ca_object_address(object, d->d_un.d_ptr);
		else if (d->d_tag == DT_VERDEF)
			versions.defined = ca_object_address(object, d->d_un.d_ptr);
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
is_match(const struct ca_object *object, uint32_t index, void *arg)
{
	const struct search *search = arg;
	struct versions versions = read_versions(object);
	unsigned number = versions.numbers ? versions.numbers[index] : GLOBAL;
	const char *version;

	if (ELF64_ST_TYPE(object->symbols[index].st_info) != STT_FUNC)
		return false;
	if (!search->version || !versions.numbers)
		return !(number & HIDDEN);
	version = name_defined(object, &versions, number & ~(unsigned)HIDDEN);
	return version && ca_early_equal(version, search->version);
}

static bool
visit_definition(const struct ca_object *object, void *arg)
{
	struct search *search = arg;
	uint32_t index = ca_object_find(object, search->name, is_match, search);

	search->passed_libc |= ca_early_starts_with(object->soname, "libc.so.");
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
