/* SPDX-License-Identifier: MIT */
/*
 * A word of an object that the loader has filled with the address of one of our functions is made
 * to hold what it would hold without us, if that is a variable. Without us, a name means the first
 * of these that define it:
 *
 *   1. the objects that were loaded at start, in their order, which is the global scope;
 *   2. the object itself;
 *   3. the objects that it names as needed.
 *
 * If that is a function, the word is a call's or a pointer's to a function, and stays; but an
 * object that defines a variable never means somebody's function. A library that was opened with
 * RTLD_GLOBAL counts as any other opened one: whether it was is not to be seen.
 *
 * The constructors of other libraries run before ours. So what is there at start is looked at while
 * the loader relocates us: our own relocations end with a function that is chosen by a resolver
 * (ifunc). All objects behind us, and libc, are relocated by then; those before us define what they
 * mean themselves. No function is called there but libc's own: those of the program and of
 * libraries before us, such as a sanitizer's runtime, are not relocated yet. What is opened later
 * is looked at in the next dlsym, where the rules of shim/bind/links.c hold for words behind RELRO.
 */
#include "shim/bind/variables.h"

#include <limits.h>
#include <stdatomic.h>

#include "shim/bind/early.h"
#include "shim/bind/loader.h"
#include "shim/bind/object.h"
#include "shim/bind/references.h"
#include "shim/bind/scope.h"
#include "shim/bind/trampoline.h"

enum {
	KNOWN_MAX = 1024,
	TRIES = 3,
};

/* Objects without such a word, by their identity; 0: none. */
static _Atomic uint64_t known[KNOWN_MAX];
static _Atomic uint64_t started;        /* generation of the look at start; 0: there was none */
static _Atomic uint64_t restored;       /* generation */
static unsigned start_count = UINT_MAX; /* objects that were there at start */

struct restore {
	uint64_t generation;
	const struct ca_object *object; /* whose references are looked at */
	uintptr_t low, bytes;           /* where we are */
	unsigned count;                 /* objects seen */
	bool any;                       /* of the object's words is one of ours */
	bool modified;                  /* something was loaded meanwhile */
};

/* ---- what a name means without us */

struct definition {
	uintptr_t address; /* 0: none */
	bool is_variable;
};

struct search {
	const char *name;
	const struct ca_object *owner;
	unsigned count;
	struct definition global, needed;
};

static bool
is_us(const struct ca_object *object)
{
	return ca_object_holds(object, (uintptr_t)ca_dlsym_trampoline);
}

static const char *
file_name(const char *path)
{
	const char *name = path;

	for (; *path; path++)
		if (*path == '/')
			name = path + 1;
	return name;
}

static bool
needs(const struct ca_object *owner, const struct ca_object *object)
{
	const char *name = *object->soname ? object->soname : file_name(object->path);

	for (const ElfW(Dyn) *d = owner->dynamic; d->d_tag != DT_NULL; d++)
		if (d->d_tag == DT_NEEDED && ca_early_equal(owner->strings + d->d_un.d_val, name))
			return true;
	return false;
}

static bool
visit_definition(const struct ca_object *object, void *arg)
{
	struct search *search = arg;
	bool at_start = search->count++ < start_count;
	struct definition *found = at_start ? &search->global : &search->needed;
	unsigned type = STT_NOTYPE;
	uintptr_t address;

	if (found->address || is_us(object) || (!at_start && !needs(search->owner, object)))
		return false;
	address = ca_object_symbol(object, search->name, &type);
	if (address)
		*found = (struct definition){ address, type == STT_OBJECT };
	return false;
}

/* The address of the variable; 0: the name means none. */
static uintptr_t
find_variable(const struct ca_object *owner, uint32_t symbol)
{
	const ElfW(Sym) *s = &owner->symbols[symbol];
	struct search search = { .name = owner->strings + s->st_name, .owner = owner };

	ca_object_walk(visit_definition, &search);
	if (search.global.is_variable)
		return search.global.address;
	if (s->st_shndx != SHN_UNDEF && ELF64_ST_TYPE(s->st_info) == STT_OBJECT)
		return owner->base + s->st_value;
	if (search.global.address || !search.needed.is_variable)
		return 0;
	return search.needed.address;
}

/* ---- the words of an object */

static void
restore_word(struct restore *restore, const ElfW(Rela) * rela, uintptr_t *word)
{
	const struct ca_object *object = restore->object;
	uint32_t symbol = ELF64_R_SYM(rela->r_info);
	const char *name = object->strings + object->symbols[symbol].st_name;
	const struct ca_row *row = ca_row_of_hook(name);
	uintptr_t variable;

	if (!row || *word != row->hook + (uintptr_t)rela->r_addend)
		return;
	restore->any = true;
	variable = find_variable(object, symbol);
	if (variable)
		ca_reference_store(object, word, variable + (uintptr_t)rela->r_addend);
}

static void
restore_words(struct restore *restore, const struct ca_reference_table *table, uint64_t first)
{
	for (uint64_t i = first; i < table->n; i++) {
		const ElfW(Rela) *rela = &table->rela[i];
		uint32_t type = ELF64_R_TYPE(rela->r_info);
		uintptr_t *word = (uintptr_t *)(restore->object->base + rela->r_offset);

		if ((type != CA_REFERENCE_DATA && type != CA_REFERENCE_ADDRESS) ||
		    !ELF64_R_SYM(rela->r_info) || (uintptr_t)word % sizeof(*word))
			continue;
		if (__atomic_load_n(word, __ATOMIC_RELAXED) - restore->low < restore->bytes)
			restore_word(restore, rela, word);
	}
}

/* The look at start leaves no object out later on: some were not relocated yet. */
static void
restore_object(struct restore *restore, bool at_start)
{
	const struct ca_object *object = restore->object;
	struct ca_references references;
	_Atomic uint64_t *place = NULL;
	uint64_t print = 0;

	if (!object->symbols || !object->strings || is_us(object))
		return;
	ca_references_read(object, &references);
	if (!at_start) {
		print = ca_references_print(object, &references);
		place = ca_references_place(known, KNOWN_MAX, print);
	}
	if (place && atomic_load_explicit(place, memory_order_relaxed) == print)
		return;
	restore->any = false;
	if (references.other.rela)
		restore_words(restore, &references.other, references.relative);
	if (place && !restore->any)
		atomic_store_explicit(place, print, memory_order_relaxed);
}

/* ---- all objects */

static bool
visit_us(const struct ca_object *object, void *arg)
{
	struct restore *restore = arg;
	uintptr_t low = UINTPTR_MAX, end = 0;

	if (!is_us(object))
		return false;
	for (unsigned i = 0; i < object->phdr_count; i++) {
		const ElfW(Phdr) *p = &object->phdr[i];

		if (p->p_type != PT_LOAD)
			continue;
		low = p->p_vaddr < low ? p->p_vaddr : low;
		end = p->p_vaddr + p->p_memsz > end ? p->p_vaddr + p->p_memsz : end;
	}
	restore->low = object->base + low;
	restore->bytes = end - low;
	return true;
}

static bool
visit_at_start(const struct ca_object *object, void *arg)
{
	struct restore *restore = arg;

	restore->object = object;
	restore->count++;
	restore_object(restore, true);
	return false;
}

static bool
visit_later(const struct ca_object *object, void *arg)
{
	struct restore *restore = arg;

	if (!restore->object) /* the walk holds the loader's lock, so this stays as it is now */
		restore->modified = ca_object_generation() != restore->generation;
	restore->object = object;
	if (!restore->modified)
		restore_object(restore, false);
	return restore->modified;
}

/* ---- when */

/* True: everything that was there at the generation is done with. */
static bool
restore_at(uint64_t generation)
{
	struct restore restore = { .generation = generation };

	if (generation != atomic_load(&started))
		ca_loader_wait();
	if (!ca_object_walk(visit_us, &restore))
		return true;
	ca_object_walk(visit_later, &restore);
	if (restore.modified)
		return false;
	atomic_store(&restored, generation);
	return true;
}

static void
restore_later(void)
{
	uint64_t generation = ca_object_generation();
	CA_KEEP_ERRNO;

	if (atomic_load_explicit(&restored, memory_order_acquire) == generation)
		return;
	for (unsigned tries = 0; tries < TRIES && !restore_at(generation); tries++)
		generation = ca_object_generation();
}

typedef void restore_fn(void);

/* Called by the loader, see above. Where the program has a copy of the loader's own list that is
 * not filled yet, libc cannot be found, and all is left for the next dlsym. */
static restore_fn *
restore_at_start(void)
{
	struct restore restore = { .object = NULL };

	if (_r_debug.r_map && ca_object_walk(visit_us, &restore)) {
		ca_object_walk(visit_at_start, &restore);
		start_count = restore.count;
		atomic_store(&started, ca_object_generation());
	}
	return restore_later;
}

void ca_variables_restore(void) __attribute__((ifunc("restore_at_start")));
