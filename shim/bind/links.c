/* SPDX-License-Identifier: MIT */
/*
 * A call by direct link goes through a word of the calling object that the loader fills: for a
 * relocation of type JUMP_SLOT, GLOB_DAT or a plain address against an undefined symbol. Filled, it
 * holds the real address, for which there is a thunk. A JUMP_SLOT that is bound at its first call
 * still leads back into its own object; the definition is then looked up as the loader would, by
 * name and version (shim/bind/symbol_version.h). A weak reference to what is not there stays 0.
 *
 * Words behind RELRO are made writable for one store. That is safe only once the loader has done
 * with the object. dl_iterate_phdr shows objects before they are relocated, but whoever has held
 * the lock of dlopen once has seen the end of every dlopen begun before; and while the counts of
 * loads and unloads stay what they were before that, there is no other object. During a walk the
 * loader keeps everything mapped, and lets nobody else walk.
 *
 * A word may be rebound by a first call that another thread is in the middle of, so a walk that
 * changed something is followed by another one.
 *
 * Of the driver's functions only what the driver itself defines counts. Almost no object is linked
 * to one that we do not know, so a first walk only looks for one: it reads names, which are there
 * before the loader has done, and nobody waits.
 */
#include "shim/bind/links.h"

#include <stdatomic.h>

#include "shim/bind/early.h"
#include "shim/bind/loader.h"
#include "shim/bind/object.h"
#include "shim/bind/references.h"
#include "shim/bind/registrations.h"
#include "shim/bind/scope.h"
#include "shim/bind/symbol_version.h"
#include "shim/bind/unseen_calls.h"

enum {
	KNOWN_MAX = 4096,
	TRIES = 3,
};

/* Objects without such a reference, by what tells them from others; 0: none. */
static _Atomic uint64_t known[KNOWN_MAX];
static _Atomic uint64_t followed; /* generation */
static atomic_bool unseen;        /* a driver's function may be called without our seeing it */

struct follow {
	uint64_t generation;
	const struct ca_object *object; /* whose references are looked at */
	bool is_drivers;                /* so its calls of the driver are the driver's own */
	bool looks;                     /* only: no word is changed */
	bool unknown;                   /* some word is for a driver's function, and no thunk's */
	bool changed;                   /* some word was */
	bool any;                       /* of the object's words is one of ours */
	bool modified;                  /* something was loaded meanwhile */
	bool missed;                    /* some word cannot be followed */
	bool unseen;                    /* the same of one for a driver's function */
};

/* ---- one word */

static uintptr_t *
word_of(const struct ca_object *object, const ElfW(Rela) * rela)
{
	return (uintptr_t *)(object->base + rela->r_offset);
}

/* The function that a word leads to which holds `held`; 0: none to be followed, or *ret_unclear. */
static uintptr_t
target_of(const struct ca_object *object, const ElfW(Rela) * rela, uintptr_t held,
	  bool *ret_unclear)
{
	*ret_unclear = false;
	if (!ca_object_holds(object, held))
		return held;
	if (ELF64_R_TYPE(rela->r_info) != CA_REFERENCE_CALL)
		return 0; /* its link table's entry, or a function that it has put there itself */
	return ca_version_definition(object, ELF64_R_SYM(rela->r_info), ret_unclear);
}

static void
follow_word(struct follow *follow, enum ca_registration which, const ElfW(Rela) * rela)
{
	const struct ca_object *object = follow->object;
	uintptr_t *word = word_of(object, rela), thunk;
	uintptr_t real = __atomic_load_n(word, __ATOMIC_ACQUIRE);
	bool unclear;

	follow->any = true;
	if (follow->looks || !real || ca_registration_is_thunk(real))
		return;
	real = target_of(object, rela, real, &unclear);
	follow->missed |= unclear;
	if (!real)
		return; /* or its first call ends the process */
	thunk = ca_registration_thunk(which, real);
	if (thunk && ca_reference_store(object, word, thunk))
		follow->changed = true;
	else
		follow->missed = true;
}

/* A name of the driver's that we do not know. A word that leads to a wrapper of the function stays:
 * it asks for the function itself, and is seen then. */
static void
follow_unknown(struct follow *follow, const char *name, const ElfW(Rela) * rela)
{
	const struct ca_object *object = follow->object;
	uintptr_t *word = word_of(object, rela), thunk;
	uintptr_t real = __atomic_load_n(word, __ATOMIC_ACQUIRE);
	bool unclear = false;
	unsigned type;

	follow->any = true;
	if (ca_unseen_is_thunk(real) || !ca_object_driver_defines(name, 0, &type) ||
	    type == STT_OBJECT)
		return;
	follow->unknown = true;
	if (follow->looks || !real)
		return;
	if (type == STT_FUNC)
		real = target_of(object, rela, real, &unclear);
	else
		unclear = ca_object_holds(object, real); /* not bound yet */
	follow->unseen |= unclear;
	if (!real || !ca_object_driver_holds(real))
		return;
	thunk = type == STT_FUNC ? ca_unseen_thunk(real) : 0;
	if (thunk && ca_reference_store(object, word, thunk))
		follow->changed = true;
	else
		follow->unseen = true;
}

static void
follow_table(struct follow *follow, const struct ca_reference_table *table, uint64_t first)
{
	const struct ca_object *object = follow->object;

	for (uint64_t i = first; i < table->n; i++) {
		const ElfW(Rela) *rela = &table->rela[i];
		uint32_t type = ELF64_R_TYPE(rela->r_info), symbol = ELF64_R_SYM(rela->r_info);
		enum ca_registration which;
		const char *name;

		if (!symbol || (type != CA_REFERENCE_CALL && type != CA_REFERENCE_DATA &&
				(type != CA_REFERENCE_ADDRESS || rela->r_addend)))
			continue;
		if (object->symbols[symbol].st_shndx != SHN_UNDEF)
			continue;
		name = object->strings + object->symbols[symbol].st_name;
		which = ca_registration_of(name);
		if (which != CA_REGISTRATION_NONE)
			follow_word(follow, which, rela);
		else if (!follow->is_drivers && ca_name_is_drivers(name) &&
			 !ca_name_is_symbol(name))
			follow_unknown(follow, name, rela);
	}
}

/* ---- one object */

/* The driver, or a library that is installed with it. */
static bool
is_drivers(const struct ca_object *object)
{
	return ca_object_is_driver(object) || ca_early_starts_with(object->soname, "libnvidia-") ||
	       ca_early_starts_with(object->soname, "libcudadebugger.so.");
}

static bool
visit_object(const struct ca_object *object, void *arg)
{
	struct follow *follow = arg;
	struct ca_references references;
	_Atomic uint64_t *place;
	uint64_t print;

	if (!object->symbols || !object->strings ||
	    ca_object_holds(object, (uintptr_t)ca_registration_thunks))
		return false;
	ca_references_read(object, &references);
	print = ca_references_print(object, &references);
	place = ca_references_place(known, KNOWN_MAX, print);
	if (place && atomic_load_explicit(place, memory_order_relaxed) == print)
		return false;
	follow->any = false;
	follow->is_drivers = is_drivers(object);
	if (references.lazy.rela)
		follow_table(follow, &references.lazy, 0);
	if (references.other.rela)
		follow_table(follow, &references.other, references.relative);
	if (place && !follow->any)
		atomic_store_explicit(place, print, memory_order_relaxed);
	return false;
}

/* ---- all of them */

static bool
visit_look(const struct ca_object *object, void *arg)
{
	struct follow *follow = arg;

	follow->object = object;
	return visit_object(object, arg);
}

/* True: some object is linked to a function of the driver's that we do not know. */
static bool
has_unknown(void)
{
	struct follow follow = { .looks = true };

	ca_object_walk(visit_look, &follow);
	return follow.unknown;
}

static bool
visit_all(const struct ca_object *object, void *arg)
{
	struct follow *follow = arg;

	if (!follow->object) /* the walk holds the loader's lock, so this stays as it is now */
		follow->modified = ca_object_generation() != follow->generation;
	follow->object = object;
	return follow->modified || visit_object(object, arg);
}

/* The older libibverbs of MLNX_OFED registers by ibv_exp_reg_mr, which is inline and calls through
 * a table of the device's; this is what its providers call then. */
static const char inlined[] = "ibv_cmd_exp_reg_mr";

struct libraries {
	bool any;
	bool inlined; /* one of them registers by inlined calls */
};

static bool
visit_library(const struct ca_object *object, void *arg)
{
	static const char *const prefixes[] = { "libibverbs.so.", "libcufile.so.", "libgdrapi.so.",
						"libmlx5.so.", "libcxi.so." };
	struct libraries *libraries = arg;

	for (unsigned i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
		if (ca_early_starts_with(object->soname, prefixes[i])) {
			libraries->any = true;
			libraries->inlined |= !i && ca_object_symbol(object, inlined, NULL);
		}
	return false;
}

/* True: everything that was there at the generation is followed for good. */
static bool
follow_at(uint64_t generation)
{
	struct follow follow = { .generation = generation };

	ca_loader_wait();
	ca_object_walk(visit_all, &follow);
	if (follow.missed)
		ca_registration_miss();
	if (follow.unseen && !atomic_exchange(&unseen, true))
		ca_unseen_note_lookup();
	if (follow.modified || follow.changed)
		return false;
	atomic_store(&followed, generation);
	return true;
}

void
ca_links_follow(uint64_t generation)
{
	struct libraries libraries = { false, false };
	CA_KEEP_ERRNO;

	if (atomic_load(&followed) == generation)
		return;
	ca_object_walk(visit_library, &libraries);
	if (libraries.inlined)
		ca_registration_miss();
	if (!libraries.any && !has_unknown()) {
		atomic_store(&followed, generation);
		return;
	}
	for (unsigned tries = 0; tries < TRIES && !follow_at(generation); tries++)
		generation = ca_object_generation();
}

static bool
visit_driver(const struct ca_object *object, void *arg)
{
	return ca_object_is_driver(object);
}

void
ca_links_follow_at_start(void)
{
	if (ca_object_walk(visit_driver, NULL) && has_unknown())
		ca_links_follow(ca_object_generation());
}
