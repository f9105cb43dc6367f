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

#include <dlfcn.h>
#include <stdatomic.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#include "shim/bind/early.h"
#include "shim/bind/loader.h"
#include "shim/bind/object.h"
#include "shim/bind/registrations.h"
#include "shim/bind/scope.h"
#include "shim/bind/symbol_version.h"

#if defined(__x86_64__)
enum { TYPE_ADDRESS = R_X86_64_64, TYPE_DATA = R_X86_64_GLOB_DAT, TYPE_CALL = R_X86_64_JUMP_SLOT };
#elif defined(__aarch64__)
enum {
	TYPE_ADDRESS = R_AARCH64_ABS64,
	TYPE_DATA = R_AARCH64_GLOB_DAT,
	TYPE_CALL = R_AARCH64_JUMP_SLOT,
};
#endif

enum {
	KNOWN_MAX = 4096, /* a power of two */
	TRIES = 3,
};

/* Objects without such a reference, by what tells them from others; 0: none. */
static _Atomic uint64_t known[KNOWN_MAX];
static _Atomic uint64_t followed; /* generation */

struct table {
	const ElfW(Rela) * rela;
	uint64_t n;
};

struct references {
	struct table lazy, other;
	uint64_t relative; /* of `other`, which come first */
};

struct follow {
	uint64_t generation;
	const struct ca_object *object; /* whose references are looked at */
	bool changed;                   /* some word was */
	bool any;                       /* of the object's words is one of ours */
	bool modified;                  /* something was loaded meanwhile */
	bool missed;                    /* some word cannot be followed */
};

/* ---- the object's own tables */

static void
read_references(const struct ca_object *object, struct references *ret)
{
	*ret = (struct references){ .relative = 0 };
	for (const ElfW(Dyn) *d = object->dynamic; d->d_tag != DT_NULL; d++) {
		if (d->d_tag == DT_JMPREL)
			ret->lazy.rela = ca_object_address(object, d->d_un.d_ptr);
		else if (d->d_tag == DT_PLTRELSZ)
			ret->lazy.n = d->d_un.d_val / sizeof(ElfW(Rela));
		else if (d->d_tag == DT_RELA)
			ret->other.rela = ca_object_address(object, d->d_un.d_ptr);
		else if (d->d_tag == DT_RELASZ)
			ret->other.n = d->d_un.d_val / sizeof(ElfW(Rela));
		else if (d->d_tag == DT_RELACOUNT)
			ret->relative = d->d_un.d_val;
	}
}

static bool
is_protected(const struct ca_object *object, uintptr_t at, uintptr_t page)
{
	for (unsigned i = 0; i < object->phdr_count; i++) {
		const ElfW(Phdr) *p = &object->phdr[i];
		uintptr_t from = object->base + p->p_vaddr;

		if (p->p_type == PT_GNU_RELRO && at >= (from & -page) &&
		    at < ((from + p->p_memsz) & -page))
			return true;
	}
	return false;
}

static bool
is_writable(const struct ca_object *object, uintptr_t at)
{
	for (unsigned i = 0; i < object->phdr_count; i++) {
		const ElfW(Phdr) *p = &object->phdr[i];

		if (p->p_type == PT_LOAD && at - (object->base + p->p_vaddr) < p->p_memsz)
			return p->p_flags & PF_W;
	}
	return false;
}

/* ---- one word */

static bool
store(const struct ca_object *object, uintptr_t *word, uintptr_t value)
{
	uintptr_t page = getauxval(AT_PAGESZ), at = (uintptr_t)word;
	bool closed = is_protected(object, at, page);

	if (!is_writable(object, at) ||
	    (closed && mprotect((void *)(at & -page), page, PROT_READ | PROT_WRITE)))
		return false;
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
	if (closed)
		mprotect((void *)(at & -page), page, PROT_READ);
	return true;
}

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
	if (thunk && store(object, word, thunk))
		follow->changed = true;
	else
		follow->missed = true;
}

static void
follow_table(struct follow *follow, const struct table *table, uint64_t first)
{
	const struct ca_object *object = follow->object;

	for (uint64_t i = first; i < table->n; i++) {
		const ElfW(Rela) *rela = &table->rela[i];
		uint32_t type = ELF64_R_TYPE(rela->r_info), symbol = ELF64_R_SYM(rela->r_info);
		enum ca_registration which;

		if (!symbol || (type != TYPE_CALL && type != TYPE_DATA &&
				(type != TYPE_ADDRESS || rela->r_addend)))
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

/* The identity of an object: another one at the same place with just the same tables is the
 * same. */
static uint64_t
print_of(const struct ca_object *object, const struct references *references)
{
	const uint64_t words[] = {
		object->base,
		(uintptr_t)object->dynamic,
		(uintptr_t)object->symbols,
		(uintptr_t)object->strings,
		(uintptr_t)references->lazy.rela,
		references->lazy.n,
		(uintptr_t)references->other.rela,
		references->other.n,
		references->relative,
	};
	uint64_t print = 0xcbf29ce484222325;

	for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		print = (print ^ words[i]) * 0x100000001b3 ^ print >> 29;
	for (const char *c = object->soname; *c; c++)
		print = (print ^ (unsigned char)*c) * 0x100000001b3;
	return print | 1;
}

static _Atomic uint64_t *
place_of(uint64_t print)
{
	uint64_t i = print >> 20;

	for (unsigned tries = 0; tries < 64; tries++, i++) {
		uint64_t held = atomic_load_explicit(&known[i % KNOWN_MAX], memory_order_relaxed);

		if (!held || held == print)
			return &known[i % KNOWN_MAX];
	}
	return NULL;
}

static bool
visit_object(const struct ca_object *object, void *arg)
{
	struct follow *follow = arg;
	struct references references;
	_Atomic uint64_t *place;
	uint64_t print;

	if (!object->symbols || !object->strings ||
	    ca_object_holds(object, (uintptr_t)ca_registration_thunks))
		return false;
	read_references(object, &references);
	print = print_of(object, &references);
	place = place_of(print);
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
						"libmlx5.so." };
	struct libraries *libraries = arg;

	for (unsigned i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
		if (ca_early_starts_with(object->soname, prefixes[i])) {
			libraries->any = true;
			libraries->inlined |= !i && ca_object_symbol(object, inlined, NULL);
		}
	return false;
}

/* A thread that gets this lock has waited for every dlopen begun before. */
static void
wait_for_dlopen(void)
{
	ca_dlopen_fn *real_dlopen = ca_loader_dlopen();

	if (real_dlopen)
		real_dlopen(NULL, RTLD_LAZY); /* the program itself, which is never closed */
}

/* True: everything that was there at the generation is followed for good. */
static bool
follow_at(uint64_t generation)
{
	struct follow follow = { .generation = generation };

	wait_for_dlopen();
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
