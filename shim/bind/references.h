/* SPDX-License-Identifier: MIT */
/*
 * The references of a loaded object: the words of it that the loader fills with the addresses of
 * symbols, as its own relocation tables list them, and how such a word is changed.
 *
 * Everything here is early (shim/bind/loader.h), in a walk of objects, and keeps errno.
 */
#pragma once

#include <link.h>
#include <stdbool.h>
#include <stdint.h>

#include "shim/bind/object.h"

#if defined(__x86_64__)
enum {
	CA_REFERENCE_ADDRESS = R_X86_64_64,
	CA_REFERENCE_DATA = R_X86_64_GLOB_DAT,
	CA_REFERENCE_CALL = R_X86_64_JUMP_SLOT,
};
#elif defined(__aarch64__)
enum {
	CA_REFERENCE_ADDRESS = R_AARCH64_ABS64,
	CA_REFERENCE_DATA = R_AARCH64_GLOB_DAT,
	CA_REFERENCE_CALL = R_AARCH64_JUMP_SLOT,
};
#endif

struct ca_reference_table {
	const ElfW(Rela) * rela; /* NULL: none */
	uint64_t n;
};

struct ca_references {
	struct ca_reference_table lazy, other;
	uint64_t relative; /* of `other`, which come first and name no symbol */
};

void ca_references_read(const struct ca_object *object, struct ca_references *ret);
/* The identity of an object: another one at the same place with just the same tables is the same.
 * Never 0. */
uint64_t ca_references_print(const struct ca_object *object,
			     const struct ca_references *references);
/* The place of an identity in a table of `n` (a power of two): it holds that identity, or 0. NULL:
 * there is no room. */
_Atomic uint64_t *ca_references_place(_Atomic uint64_t *known, uint64_t n, uint64_t print);

/*
 * Stores into a word of the object, behind RELRO too, which is safe only once the loader has done
 * with the object. False: it cannot be written.
 */
bool ca_reference_store(const struct ca_object *object, uintptr_t *word, uintptr_t value);
