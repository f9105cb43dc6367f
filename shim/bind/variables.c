/* SPDX-License-Identifier: MIT */
/*
 * A word of an object that the loader has filled with the address of one of our functions is made
 * to hold what it would hold without us, if that is a variable. Without us, a name means the first
 * of these that define it:
 *
 *   1. the objects that were loaded at start, in their order, which is the global scope;
 *   2. the object itself;
 *   3. the objects that were opened together with it: what it needs, what needs it, and what that
 *      needs, in the order of their loading.
 *
 * If that is a function, the word is a call's or a pointer's to a function, and stays; but an
 * object that defines a variable never means somebody's function. A library that was opened with
 * RTLD_GLOBAL counts as any other opened one: whether it was is not to be seen.
 *
 * The constructors of other libraries run before ours. So what is there at start is looked at while
 * the loader relocates us: our own relocations end with a function that is chosen by a resolver
 * (ifunc). All objects behind us, and libc, are relocated by then. No function is called there but
 * libc's own: those of the program and of libraries before us, such as a sanitizer's runtime, are
 * not relocated yet. Their references to variables of other libraries are looked at in our
 * constructor, before the program begins. Objects that are opened later are looked at in the next
 * dlsym, where the rules of shim/bind/links.c hold for words behind RELRO; in a forked child in the
 * next for a name of the driver's (shim/bind/dlsym.c).
 *
 * In the same look the word by which a library that was opened with RTLD_DEEPBIND calls dlsym, and
 * which the loader has filled with libc's, is made to hold ours. Whether it was opened so is not to
 * be seen, but of what is opened later nobody else has libc's while ours stands first.
 */
#include "shim/bind/variables.h"

#include <limits.h>
#include <stdatomic.h>
#include <unistd.h>

#include "shim/bind/early.h"
#include "shim/bind/links.h"
#include "shim/bind/loader.h"
#include "shim/bind/object.h"
#include "shim/bind/references.h"
#include "shim/bind/scope.h"
#include "shim/bind/trampoline.h"

enum {
	KNOWN_MAX = 1024,
	HAD_MAX = 256,
	RELATED_MAX = 2048, /* objects */
};

/* Objects without such a word, and objects that have had one, by their identity; 0: none. The
 * latter may be closed, and opened again just as they were, with such words. */
static _Atomic uint64_t known[KNOWN_MAX], had[HAD_MAX];
static _Atomic uint64_t restored;       /* generation */
static unsigned start_count = UINT_MAX; /* objects that were there at start */

static pid_t started_in; /* the process; 0: our constructor has not run */

/* Where we are. */
extern const char ca_image_start[] __asm__("__ehdr_start") __attribute__((visibility("hidden")));
extern const char ca_image_end[] __asm__("_end") __attribute__((visibility("hidden")));

extern const ElfW(Dyn) ca_dynamic[] __asm__("_DYNAMIC") __attribute__((visibility("hidden")));

struct restore {
	uint64_t generation;
	struct ca_object_counts counts; /* before the loader was waited for */
	uint64_t left; /* objects that were there then, and are yet to be visited */
	const struct ca_object *object; /* whose references are looked at */
	unsigned count;                 /* objects that were looked at before it */
	bool at_start;
	bool any;      /* of the object's words is one of ours */
	bool open;     /* some of the object's have no address */
	bool early;    /* of some object, since that is being opened: a dlopen calls us */
	bool modified; /* something was loaded meanwhile */
};

/* ---- what a name means without us */

struct definition {
	uintptr_t address; /* 0: none */
	bool is_variable;
};

struct related;

struct search {
	const char *name;
	const struct related *related; /* NULL: those that were there at start */
	unsigned count;
	struct definition found;
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

/* By the name that it was linked with: a path, where the library has no name of its own. */
static bool
needs(const struct ca_object *owner, const struct ca_object *object)
{
	const char *file = file_name(object->path), *needed;

	for (const ElfW(Dyn) *d = owner->dynamic; d->d_tag != DT_NULL; d++) {
		if (d->d_tag != DT_NEEDED)
			continue;
		needed = owner->strings + d->d_un.d_val;
		if (ca_early_equal(needed, object->soname) ||
		    ca_early_equal(file_name(needed), file))
			return true;
	}
	return false;
}

/* The objects that were opened with one, by their places in the list. */
struct related {
	const struct ca_object *owner, *object;
	unsigned outer, inner;
	bool up; /* those that need the others are looked for; else those that are needed */
	bool is_one, any;
	uint64_t marked[RELATED_MAX / 64];
};

static bool
is_marked(const struct related *related, unsigned i)
{
	return i < RELATED_MAX && related->marked[i / 64] >> i % 64 & 1;
}

static bool
visit_marked(const struct ca_object *object, void *arg)
{
	struct related *related = arg;
	const struct ca_object *other = related->object;

	if (!is_marked(related, related->inner++) || !object->strings || !other->strings)
		return false;
	related->is_one = related->up ? needs(other, object) : needs(object, other);
	return related->is_one;
}

static bool
visit_unmarked(const struct ca_object *object, void *arg)
{
	struct related *related = arg;
	unsigned i = related->outer++;

	if (i < start_count || i >= RELATED_MAX || is_marked(related, i))
		return false;
	related->object = object;
	related->inner = 0;
	related->is_one = object->dynamic == related->owner->dynamic;
	if (!related->is_one)
		ca_object_walk(visit_marked, related);
	if (related->is_one)
		related->marked[i / 64] |= (uint64_t)1 << i % 64;
	related->any |= related->is_one;
	return false;
}

static void
find_related(struct related *related)
{
	for (unsigned way = 0; way < 2; way++) {
		related->up = !way;
		do {
			related->any = false;
			related->outer = 0;
			ca_object_walk(visit_unmarked, related);
		} while (related->any);
	}
}

static bool
visit_definition(const struct ca_object *object, void *arg)
{
	struct search *search = arg;
	unsigned i = search->count++, type = STT_NOTYPE;

	if (is_us(object) || (search->related ? !is_marked(search->related, i) : i >= start_count))
		return false;
	search->found.address = ca_object_symbol(object, search->name, &type);
	search->found.is_variable = search->found.address && type == STT_OBJECT;
	return search->found.address;
}

/* The address of the variable; 0: the name means none. */
static uintptr_t
find_variable(const struct ca_object *owner, uint32_t symbol)
{
	const ElfW(Sym) *s = &owner->symbols[symbol];
	struct search search = { .name = owner->strings + s->st_name };
	struct related related = { .owner = owner };
	bool any = ca_object_walk(visit_definition, &search);

	if (search.found.is_variable)
		return search.found.address;
	if (s->st_shndx != SHN_UNDEF && ELF64_ST_TYPE(s->st_info) == STT_OBJECT)
		return owner->base + s->st_value;
	if (any)
		return 0;
	find_related(&related);
	search = (struct search){ .name = search.name, .related = &related };
	ca_object_walk(visit_definition, &search);
	return search.found.is_variable ? search.found.address : 0;
}

/* ---- the words of an object */

/* Of the references from `i` on, the first that may hold an address of ours, or that has none yet;
 * their number: there is no such one. */
static uint64_t
next_of_ours(uintptr_t base, const struct ca_reference_table *table, uint64_t i)
{
	uintptr_t start = (uintptr_t)ca_image_start, bytes = (uintptr_t)ca_image_end - start;

	for (; i < table->n; i++) {
		const ElfW(Rela) *rela = &table->rela[i];
		uint32_t type = ELF64_R_TYPE(rela->r_info);
		const uintptr_t *word = (const uintptr_t *)(base + rela->r_offset);

		if ((type == CA_REFERENCE_DATA || type == CA_REFERENCE_ADDRESS) &&
		    ELF64_R_SYM(rela->r_info) && (uintptr_t)word % sizeof(*word) == 0) {
			uintptr_t value = __atomic_load_n(word, __ATOMIC_RELAXED);

			if (!value || value - start < bytes)
				break;
		}
	}
	return i;
}

static void
restore_word(struct restore *restore, const ElfW(Rela) * rela)
{
	const struct ca_object *object = restore->object;
	uint32_t symbol = ELF64_R_SYM(rela->r_info);
	const char *name = object->strings + object->symbols[symbol].st_name;
	uintptr_t *word = (uintptr_t *)(object->base + rela->r_offset);
	const struct ca_row *row = ca_row_of_hook(name);
	uintptr_t variable;

	if (row && !*word) { /* of the two kinds the program may have written the other */
		restore->early |= ELF64_R_TYPE(rela->r_info) == CA_REFERENCE_DATA;
		restore->open = true;
	}
	if (!row || *word != row->hook + (uintptr_t)rela->r_addend)
		return;
	restore->any = true;
	variable = find_variable(object, symbol);
	if (variable)
		ca_reference_store(object, word, variable + (uintptr_t)rela->r_addend);
}

static void
restore_words(struct restore *restore, const struct ca_references *references)
{
	const struct ca_reference_table *table = &references->other;
	uintptr_t base = restore->object->base;
	uint64_t i = references->relative;

	while (table->rela && (i = next_of_ours(base, table, i)) < table->n)
		restore_word(restore, &table->rela[i++]);
}

/* ---- look-ups of a library that was opened with RTLD_DEEPBIND */

static bool
visit_lookup(const struct ca_object *object, void *arg)
{
	bool *ours = arg;

	*ours = is_us(object);
	return *ours || ca_object_symbol(object, "dlsym", NULL);
}

/* True: a library that is opened without RTLD_DEEPBIND has ours. */
static bool
is_first(void)
{
	bool ours = false;

	ca_object_walk(visit_lookup, &ours);
	return ours;
}

/* A word for dlsym that holds libc's, or will from its first call on (lazy binding). */
static bool
passes_by(const struct ca_object *object, const ElfW(Rela) * rela)
{
	uint32_t type = ELF64_R_TYPE(rela->r_info), symbol = ELF64_R_SYM(rela->r_info);
	uintptr_t value;

	if (!symbol || (type != CA_REFERENCE_CALL && type != CA_REFERENCE_DATA) ||
	    object->symbols[symbol].st_shndx != SHN_UNDEF ||
	    !ca_early_equal(object->strings + object->symbols[symbol].st_name, "dlsym"))
		return false;
	value = __atomic_load_n((uintptr_t *)(object->base + rela->r_offset), __ATOMIC_ACQUIRE);
	return value == (uintptr_t)ca_loader_dlsym() ||
	       (type == CA_REFERENCE_CALL && ca_object_holds(object, value));
}

static void
follow_lookups(struct restore *restore, const struct ca_reference_table *table, uint64_t i)
{
	const struct ca_object *object = restore->object;

	for (; table->rela && i < table->n; i++) {
		if (!passes_by(object, &table->rela[i]) || !is_first())
			continue;
		restore->any = true; /* a first call that is under way may store libc's again */
		ca_reference_store(object, (uintptr_t *)(object->base + table->rela[i].r_offset),
				   (uintptr_t)ca_dlsym_trampoline);
	}
}

static bool
is_in(_Atomic uint64_t *place, uint64_t print)
{
	return place && atomic_load_explicit(place, memory_order_relaxed) == print;
}

/* The look at start leaves no object out later on: some were not relocated yet. */
static void
restore_object(struct restore *restore)
{
	const struct ca_object *object = restore->object;
	struct ca_references references;
	_Atomic uint64_t *place, *before;
	uint64_t print;

	if (!object->symbols || !object->strings || is_us(object))
		return;
	ca_references_read(object, &references);
	print = ca_references_print(object, &references);
	place = ca_references_place(known, KNOWN_MAX, print);
	if (!restore->at_start && is_in(place, print))
		return;
	before = ca_references_place(had, HAD_MAX, print);
	restore->any = restore->open = false;
	restore_words(restore, &references);
	if (!restore->at_start && restore->count >= start_count && !ca_object_is_driver(object)) {
		follow_lookups(restore, &references.lazy, 0);
		follow_lookups(restore, &references.other, references.relative);
	}
	if (restore->any && before)
		atomic_store_explicit(before, print, memory_order_relaxed);
	else if (!restore->at_start && !restore->open && place && before && !is_in(before, print))
		atomic_store_explicit(place, print, memory_order_relaxed);
}

/* ---- all objects, later */

/* An object that another thread is opening at this moment is left out: the loader writes there.
 * (The walk holds the lock for changes of the list, so this stays as it is now.) */
static void
begin_walk(struct restore *restore)
{
	struct ca_object_counts now = ca_object_counts();
	uint64_t more = now.loads - restore->counts.loads;

	restore->modified = ca_object_generation() != restore->generation;
	restore->left = now.there > more ? now.there - more : 0;
}

static bool
visit_object(const struct ca_object *object, void *arg)
{
	struct restore *restore = arg;

	if (!restore->object)
		begin_walk(restore);
	restore->object = object;
	if (!restore->left)
		return true;
	restore->left--;
	restore_object(restore);
	restore->count++;
	return false;
}

/* Everything that was there at the generation is done with. Nobody waits in a process that
 * has opened nothing: it may be so young that it could not. */
static void
restore_at(uint64_t generation)
{
	struct restore restore = { .generation = generation, .counts = ca_object_counts() };

	if (restore.counts.there != start_count)
		ca_loader_wait();
	ca_object_walk(visit_object, &restore);
	if (!restore.modified && !restore.early)
		atomic_store(&restored, generation);
}

static void
restore_later(uint64_t generation)
{
	CA_KEEP_ERRNO;

	if (atomic_load_explicit(&restored, memory_order_acquire) == generation)
		return;
	restore_at(generation);
}

/* ---- at start */

static bool
visit_at_start(const struct ca_object *object, void *arg)
{
	struct restore restore = { .object = object, .at_start = true };

	restore_object(&restore);
	return false;
}

static bool
holds_ours(const struct link_map *map)
{
	const struct ca_object object = { .base = map->l_addr, .dynamic = map->l_ld };
	struct ca_references references;

	if (!object.dynamic)
		return false;
	ca_references_read(&object, &references);
	return references.other.rela && next_of_ours(object.base, &references.other,
						     references.relative) < references.other.n;
}

/* By the loader's own list, which is enough to see that there is nothing to do, as almost always.
 * It stays as it is while the loader calls us. */
static unsigned
look_at_start(const struct link_map *end)
{
	const struct link_map *map = _r_debug.r_map;
	unsigned count = 0;
	bool any = false;

	for (; map && map != end; map = map->l_next) {
		any |= holds_ours(map);
		count++;
	}
	if (any)
		ca_object_walk(visit_at_start, NULL);
	return count;
}

typedef void restore_fn(uint64_t generation);

/* Called by the loader, see above. Where the program has a copy of the head of the list, that is
 * not filled yet, and all is left for later. clang does not see the use below. */
static __attribute__((used)) restore_fn *
restore_at_start(void)
{
	unsigned count = look_at_start(NULL);

	if (count)
		start_count = count;
	return restore_later;
}

void ca_variables_restore(uint64_t generation) __attribute__((ifunc("restore_at_start")));

static const struct link_map *
find_us(void)
{
	const struct link_map *map = _r_debug.r_map;

	while (map && map->l_ld != ca_dynamic)
		map = map->l_next;
	return map;
}

__attribute__((constructor)) static void
restore_before_us(void)
{
	started_in = getpid();
	look_at_start(find_us());
	ca_links_follow_at_start();
}

bool
ca_variables_in_forked_child(void)
{
	return started_in && getpid() != started_in;
}
