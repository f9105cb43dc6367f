/* SPDX-License-Identifier: MIT */
/*
 * Words behind RELRO are made writable for one store, by libc's own mprotect: a sanitizer's need
 * not be ready yet (shim/bind/variables.c).
 */
#include "shim/bind/references.h"

#include <stdatomic.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#include "shim/bind/loader.h"
#include "shim/bind/scope.h"

enum { TRIES = 64 };

void
ca_references_read(const struct ca_object *object, struct ca_references *ret)
{
	*ret = (struct ca_references){ .relative = 0 };
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

uint64_t
ca_references_print(const struct ca_object *object, const struct ca_references *references)
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

_Atomic uint64_t *
ca_references_place(_Atomic uint64_t *known, uint64_t n, uint64_t print)
{
	uint64_t i = print >> 20;

	for (unsigned tries = 0; tries < TRIES; tries++, i++) {
		uint64_t held = atomic_load_explicit(&known[i % n], memory_order_relaxed);

		if (!held || held == print)
			return &known[i % n];
	}
	return NULL;
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

bool
ca_reference_store(const struct ca_object *object, uintptr_t *word, uintptr_t value)
{
	uintptr_t page = getauxval(AT_PAGESZ), at = (uintptr_t)word;
	bool closed = is_protected(object, at, page);
	ca_mprotect_fn *real_mprotect = closed ? ca_loader_mprotect() : NULL;
	void *start = (void *)(at & -page);
	CA_KEEP_ERRNO;

	if (!is_writable(object, at) ||
	    (closed && (!real_mprotect || real_mprotect(start, page, PROT_READ | PROT_WRITE))))
		return false;
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
	if (closed)
		real_mprotect(start, page, PROT_READ);
	return true;
}
