/* SPDX-License-Identifier: MIT */
/* What an arena's memory is, as the kernel sees it. */
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include "allocator/util/arena.h"
#include "tests/unit/allocator/fixture.h"

static inline uint64_t
resident_bytes(const struct ca_arena *arena)
{
	static unsigned char page[1 << 16];
	const struct ca_arena_chunk *chunk = arena->chunks;
	size_t bytes = (size_t)sysconf(_SC_PAGESIZE), i;
	uint64_t sum = 0;

	for (; chunk; chunk = chunk->next) {
		assert_true(chunk->bytes / bytes <= sizeof(page));
		assert_int_equal(mincore((void *)(uintptr_t)chunk, chunk->bytes, page), 0);
		for (i = 0; i < chunk->bytes / bytes; i++)
			sum += page[i] & 1 ? bytes : 0;
	}
	return sum;
}
