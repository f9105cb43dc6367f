/* SPDX-License-Identifier: MIT */
/*
 * Reading loaded ELF objects.
 *
 * dl_iterate_phdr hands out each object's program headers; its dynamic section then names the
 * symbol table, the strings and a hash table. glibc has already turned the addresses in there into
 * run-time ones, except in the vdso; an address below the object's base is one that has not been
 * turned.
 *
 * The hash tables are the loader's: GNU hash (buckets of the symbols from `offset` on, a chain ends
 * where bit 0 is set) and the older System V one.
 */
#include "shim/bind/object.h"

#include <stddef.h>

#include "shim/bind/early.h"

typedef int visit_fn(struct dl_phdr_info *info, size_t size, void *arg);
typedef int iterate_fn(visit_fn *visit, void *arg);

struct walk {
	ca_object_visit *visit;
	void *arg;
};

static void
read_dynamic(struct ca_object *object)
{
	uintptr_t soname = 0;
	bool named = false;

	for (const ElfW(Dyn) *d = object->dynamic; d->d_tag != DT_NULL; d++) {
		const void *value = ca_object_address(object, d->d_un.d_ptr);

		if (d->d_tag == DT_SYMTAB) {
			object->symbols = value;
		} else if (d->d_tag == DT_STRTAB) {
			object->strings = value;
		} else if (d->d_tag == DT_GNU_HASH) {
			object->gnu_hash = value;
		} else if (d->d_tag == DT_HASH) {
			object->sysv_hash = value;
		} else if (d->d_tag == DT_SONAME) {
			soname = d->d_un.d_val;
			named = true;
		}
	}
	if (named && object->strings)
		object->soname = object->strings + soname;
}

static int
walk_one(struct dl_phdr_info *info, size_t size, void *arg)
{
	const struct walk *walk = arg;
	struct ca_object object = {
		.base = info->dlpi_addr,
		.soname = "",
		.path = info->dlpi_name ? info->dlpi_name : "",
		.phdr = info->dlpi_phdr,
		.phdr_count = info->dlpi_phnum,
	};

	for (unsigned i = 0; i < object.phdr_count; i++)
		if (object.phdr[i].p_type == PT_DYNAMIC)
			object.dynamic = (const ElfW(Dyn) *)(object.base + object.phdr[i].p_vaddr);
	if (!object.dynamic)
		return 0;
	read_dynamic(&object);
	return walk->visit(&object, walk->arg);
}

/*
 * libc's own dl_iterate_phdr, which the name need not mean: a sanitizer's runtime in the program
 * may define one that calls through a pointer, and asks dlsym (hence us) before that is filled.
 * NULL if no libc is in the loader's list. The objects in front of libc there were loaded with the
 * program and stay, so that the list can be followed without a lock.
 */
static iterate_fn *
find_iterate(void)
{
	const struct link_map *map = _r_debug.r_map;

	for (; map; map = map->l_next) {
		struct ca_object object = { .base = map->l_addr,
					    .soname = "",
					    .dynamic = map->l_ld };

		if (!object.dynamic)
			continue;
		read_dynamic(&object);
		if (ca_early_starts_with(object.soname, "libc.so."))
			return (iterate_fn *)ca_object_symbol(&object, "dl_iterate_phdr", NULL);
	}
	return NULL;
}

/* Idempotent: a thread that comes early finds the same. */
static int
iterate(visit_fn *visit, void *arg)
{
	static iterate_fn *found;
	iterate_fn *real = __atomic_load_n(&found, __ATOMIC_RELAXED);

	if (!real) {
		real = find_iterate();
		if (!real)
			real = dl_iterate_phdr;
		__atomic_store_n(&found, real, __ATOMIC_RELAXED);
	}
	return real(visit, arg);
}

bool
ca_object_walk(ca_object_visit *visit, void *arg)
{
	struct walk walk = { .visit = visit, .arg = arg };

	return iterate(walk_one, &walk) != 0;
}

static int
count_first(struct dl_phdr_info *info, size_t size, void *arg)
{
	*(uint64_t *)arg = info->dlpi_adds + info->dlpi_subs;
	return 1;
}

uint64_t
ca_object_generation(void)
{
	uint64_t generation = 0;

	iterate(count_first, &generation);
	return generation;
}

static int
read_counts(struct dl_phdr_info *info, size_t size, void *arg)
{
	*(struct ca_object_counts *)arg =
		(struct ca_object_counts){ info->dlpi_adds, info->dlpi_adds - info->dlpi_subs };
	return 1;
}

struct ca_object_counts
ca_object_counts(void)
{
	struct ca_object_counts counts = { 0 };

	iterate(read_counts, &counts);
	return counts;
}

bool
ca_object_holds(const struct ca_object *object, uintptr_t address)
{
	for (unsigned i = 0; i < object->phdr_count; i++) {
		const ElfW(Phdr) *p = &object->phdr[i];

		if (p->p_type == PT_LOAD && address - (object->base + p->p_vaddr) < p->p_memsz)
			return true;
	}
	return false;
}

bool
ca_object_is_driver(const struct ca_object *object)
{
	static const char prefix[] = "libcuda.so.";
	const char *rest = object->soname + sizeof(prefix) - 1;

	return ca_early_starts_with(object->soname, prefix) && *rest >= '0' && *rest <= '9';
}

struct wanted {
	const char *name;
	ca_object_match *match; /* NULL: any of that name */
	void *arg;
};

static bool
is_wanted(const struct ca_object *object, uint32_t index, const struct wanted *wanted)
{
	const ElfW(Sym) *s = &object->symbols[index];

	return s->st_shndx != SHN_UNDEF && s->st_value &&
	       ca_early_equal(object->strings + s->st_name, wanted->name) &&
	       (!wanted->match || wanted->match(object, index, wanted->arg));
}

/* Index in the symbol table, 0 if not found (entry 0 is always empty). */
static uint32_t
find_gnu(const struct ca_object *object, const struct wanted *wanted)
{
	const uint32_t *table = object->gnu_hash;
	uint32_t bucket_count = table[0], offset = table[1], bloom_count = table[2];
	const uint32_t *buckets = table + 4 + bloom_count * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
	const uint32_t *chain = buckets + bucket_count;
	uint32_t hash = 5381;

	for (const unsigned char *c = (const unsigned char *)wanted->name; *c; c++)
		hash = hash * 33 + *c;
	if (!bucket_count || buckets[hash % bucket_count] < offset)
		return 0;
	for (uint32_t i = buckets[hash % bucket_count];; i++) {
		uint32_t link = chain[i - offset];

		if ((link | 1) == (hash | 1) && is_wanted(object, i, wanted))
			return i;
		if (link & 1)
			return 0;
	}
}

static uint32_t
find_elf(const struct ca_object *object, const struct wanted *wanted)
{
	uint32_t symbol_count = object->sysv_hash[1];

	for (uint32_t i = 1; i < symbol_count; i++)
		if (is_wanted(object, i, wanted))
			return i;
	return 0;
}

uint32_t
ca_object_find(const struct ca_object *object, const char *name, ca_object_match *match, void *arg)
{
	const struct wanted wanted = { name, match, arg };

	if (!object->symbols || !object->strings)
		return 0;
	if (object->gnu_hash)
		return find_gnu(object, &wanted);
	return object->sysv_hash ? find_elf(object, &wanted) : 0;
}

uintptr_t
ca_object_symbol(const struct ca_object *object, const char *name, unsigned *ret_type)
{
	uint32_t index = ca_object_find(object, name, NULL, NULL);

	if (!index)
		return 0;
	if (ret_type)
		*ret_type = ELF64_ST_TYPE(object->symbols[index].st_info);
	return object->base + object->symbols[index].st_value;
}

static bool
visit_holder(const struct ca_object *object, void *arg)
{
	uintptr_t *address = arg;

	if (!ca_object_holds(object, *address))
		return false;
	*address = ca_object_is_driver(object);
	return true;
}

bool
ca_object_driver_holds(uintptr_t address)
{
	uintptr_t asked = address;

	return ca_object_walk(visit_holder, &asked) && asked;
}

struct definition {
	const char *name;
	uintptr_t address; /* 0: any */
	unsigned type;
};

static bool
visit_definition(const struct ca_object *object, void *arg)
{
	struct definition *definition = arg;
	uintptr_t address;

	if (!ca_object_is_driver(object))
		return false;
	if (definition->address && !ca_object_holds(object, definition->address))
		return false;
	address = ca_object_symbol(object, definition->name, &definition->type);
	return address && (!definition->address || address == definition->address ||
			   definition->type == STT_GNU_IFUNC);
}

bool
ca_object_driver_defines(const char *name, uintptr_t address, unsigned *ret_type)
{
	struct definition definition = { .name = name, .address = address };

	if (!ca_object_walk(visit_definition, &definition))
		return false;
	*ret_type = definition.type;
	return true;
}
