/* SPDX-License-Identifier: MIT */
/*
 * The pitch that the driver chose for a width and an element size, once for each context: it
 * depends on nothing else (cuda.h, cuMemAllocPitch). A few of them, in any order, one word each, so
 * that no lock is needed; a shape that is pushed out is asked for again.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	CA_PITCH_SLOTS = 256, /* 2 KiB */
	/* of a word, from the lowest on */
	CA_PITCH_WIDTH_BITS = 31, /* the largest pitch that a device allows is 2^31 - 1 bytes */
	CA_PITCH_ELEMENT_BITS = 2,
	CA_PITCH_SPACE_BITS = 15,
	CA_PITCH_KEY_BITS = CA_PITCH_WIDTH_BITS + CA_PITCH_ELEMENT_BITS + CA_PITCH_SPACE_BITS,
};

extern _Atomic uint64_t ca_pitch_table[CA_PITCH_SLOTS] __attribute__((visibility("hidden")));

/* 0: is not kept. width: bytes; element: 4, 8 or 16 bytes; space: its number. */
static inline uint64_t
ca_pitch_key(unsigned space, size_t width, unsigned element)
{
	if (!width || width >> CA_PITCH_WIDTH_BITS || space >> CA_PITCH_SPACE_BITS ||
	    (element != 4 && element != 8 && element != 16))
		return 0;
	return width | (uint64_t)(element >> 3) << CA_PITCH_WIDTH_BITS |
	       (uint64_t)space << (CA_PITCH_WIDTH_BITS + CA_PITCH_ELEMENT_BITS);
}

static inline _Atomic uint64_t *
ca_pitch_slot(uint64_t key)
{
	return &ca_pitch_table[(key * 0x9e3779b97f4a7c15u) >> 56];
}

/* False: not known. *ret_bytes: of so many rows. */
static inline bool
ca_pitch_find(unsigned space, size_t width, unsigned element, size_t rows, size_t *ret_pitch,
	      size_t *ret_bytes)
{
	uint64_t key = ca_pitch_key(space, width, element);
	uint64_t word = atomic_load_explicit(ca_pitch_slot(key), memory_order_relaxed);

	if (!key || !rows || (word & (((uint64_t)1 << CA_PITCH_KEY_BITS) - 1)) != key)
		return false;
	*ret_pitch = width + (word >> CA_PITCH_KEY_BITS);
	return !__builtin_mul_overflow(*ret_pitch, rows, ret_bytes);
}

static inline void
ca_pitch_note(unsigned space, size_t width, unsigned element, size_t pitch)
{
	uint64_t key = ca_pitch_key(space, width, element), more = pitch - width;

	if (key && pitch >= width && !(more >> (64 - CA_PITCH_KEY_BITS)))
		atomic_store_explicit(ca_pitch_slot(key), key | more << CA_PITCH_KEY_BITS,
				      memory_order_relaxed);
}
