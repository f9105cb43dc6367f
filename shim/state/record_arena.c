/* SPDX-License-Identifier: MIT */
/*
 * A chunk is claimed by adding to its fill mark; a thread that overflows it maps a new one. Two
 * threads may both map: the loser of the exchange unmaps its own.
 */
#include "shim/state/record_arena.h"

#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>

#include "shim/bind/scope.h"

enum { CHUNK_BYTES = 64 * 1024, GRAIN_BYTES = 64 };

struct chunk {
	_Atomic size_t used; /* bytes, this header included */
};

static struct chunk *_Atomic current;

static struct chunk *
map_chunk(void)
{
	CA_KEEP_ERRNO;
	struct chunk *chunk =
		mmap(NULL, CHUNK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (chunk == MAP_FAILED)
		return NULL;
	atomic_init(&chunk->used, GRAIN_BYTES);
	return chunk;
}

void *
ca_slab_take(size_t size)
{
	size_t bytes = (size + GRAIN_BYTES - 1) & ~(size_t)(GRAIN_BYTES - 1);

	for (;;) {
		struct chunk *chunk = atomic_load_explicit(&current, memory_order_acquire);

		if (chunk) {
			size_t at = atomic_fetch_add_explicit(&chunk->used, bytes,
							      memory_order_relaxed);

			if (at + bytes <= CHUNK_BYTES)
				return (char *)chunk + at;
		}
		struct chunk *fresh = map_chunk();

		if (!fresh)
			return NULL;
		if (!atomic_compare_exchange_strong(&current, &chunk, fresh))
			munmap(fresh, CHUNK_BYTES);
	}
}
