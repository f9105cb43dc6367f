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

enum {
	KNOWN_MAX = 4096,
	TRIES = 3,
};

/* Objects without such a reference, by what tells them from others; 0: none. */
static _Atomic uint64_t known[KNOWN_MAX];
static _Atomic uint64_t followed; /* generation */

struct follow {
	uint64_t generation;
	const struct ca_object *object; /* whose references are looked at */
	bool changed;                   /* some word was */
	bool any;                       /* of the object's words is one of ours */
	bool modified;                  /* something was loaded meanwhile */
	bool missed;                    /* some word cannot be followed */
};

/* ---- one word */

static void
follow_word(struct follow *follow, enum ca_registration which, uint32_t symbol, uintptr_t *word)
{
	const struct ca_object *object = follow->object;
	uintptr_t real = __atomic_load_n(word, __ATOMIC_ACQUIRE), thunk;
	bool unclear = false;

	follow->any = true;
	if (!real || ca_registration_is_thunk(real))
		return;
	if (ca_object_holds(object, real))
		real = ca_version_definition(object, symbol, &unclear);
	follow->missed |= unclear;
	if (!real)
		return; /* or its first call ends the process */
	thunk = ca_registration_thunk(which, real);
	if (thunk && ca_reference_store(object, word, thunk))
		follow->changed = true;
	else
		follow->missed = true;
}

static void
follow_table(struct follow *follow, const struct ca_reference_table *table, uint64_t first)
{
	const struct ca_object *object = follow->object;

	for (uint64_t i = first; i < table->n; i++) {
		const ElfW(Rela) *rela = &table->rela[i];
		uint32_t type = ELF64_R_TYPE(rela->r_info), symbol = ELF64_R_SYM(rela->r_info);
		enum ca_registration which;

		if (!symbol || (type != CA_REFERENCE_CALL && type != CA_REFERENCE_DATA &&
				(type != CA_REFERENCE_ADDRESS || rela->r_addend)))
			continue;
		if (object->symbols[symbol].st_shndx != SHN_UNDEF)
			continue;
		which = ca_registration_of(object->strings + object->symbols[symbol].st_name);
		if (which != CA_REGISTRATION_NONE)
			follow_word(follow, which, symbol,
				    (uintptr_t *)(object->base + rela->r_offset));
	}
}

/* ---- one object */

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
	if (!libraries.any) {
		atomic_store(&followed, generation);
		return;
	}
	for (unsigned tries = 0; tries < TRIES && !follow_at(generation); tries++)
		generation = ca_object_generation();
}
