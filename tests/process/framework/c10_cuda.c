/* SPDX-License-Identifier: MIT */
/* Segments are lists of blocks in order of address; all are searched, which is enough for a test.
 */
#include "tests/process/framework/model.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/cudart/cudart_abi.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

struct block {
	struct block *next; /* behind it in its segment */
	char *address;
	size_t n_bytes;
	bool used;
};

struct segment {
	struct segment *next;
	struct block *first;
	size_t n_bytes;
	bool small;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct segment *segments;
static struct model_figures figures;

static bool
caches(void)
{
	const char *text = getenv("PYTORCH_NO_CUDA_MEMORY_CACHING");

	return !text || strcmp(text, "1") != 0;
}

static void *
ask(size_t n_bytes)
{
	void *pointer = NULL;

	if (cudaMalloc(&pointer, n_bytes)) {
		cudaGetLastError();
		figures.failed++;
		return NULL;
	}
	figures.segments++;
	figures.reserved_bytes += n_bytes;
	if (figures.reserved_bytes > figures.peak_reserved_bytes)
		figures.peak_reserved_bytes = figures.reserved_bytes;
	return pointer;
}

static void *
must(void *pointer)
{
	if (!pointer)
		abort();
	return pointer;
}

static bool
segment_add(size_t n_bytes, bool small)
{
	void *address = ask(n_bytes);
	struct segment *segment;

	if (!address)
		return false;
	segment = must(calloc(1, sizeof(*segment)));
	segment->first = must(calloc(1, sizeof(*segment->first)));
	segment->first->address = address;
	segment->first->n_bytes = segment->n_bytes = n_bytes;
	segment->small = small;
	segment->next = segments;
	segments = segment;
	return true;
}

static void
empty_cache_locked(void)
{
	for (struct segment **link = &segments; *link;) {
		struct segment *segment = *link;

		if (segment->first->used || segment->first->next) {
			link = &segment->next;
			continue;
		}
		*link = segment->next;
		if (cudaFree(segment->first->address))
			abort();
		figures.given_back++;
		figures.reserved_bytes -= segment->n_bytes;
		free(segment->first);
		free(segment);
	}
}

static struct block *
find(size_t n_bytes, bool small)
{
	struct block *best = NULL;

	for (struct segment *segment = segments; segment; segment = segment->next)
		for (struct block *b = segment->first; b && segment->small == small; b = b->next)
			if (!b->used && b->n_bytes >= n_bytes &&
			    (!best || b->n_bytes < best->n_bytes))
				best = b;
	return best;
}

static void
split(struct block *block, size_t n_bytes, bool small)
{
	struct block *rest;

	if (block->n_bytes - n_bytes < (small ? 512 : MIB + 1))
		return;
	rest = must(calloc(1, sizeof(*rest)));
	rest->address = block->address + n_bytes;
	rest->n_bytes = block->n_bytes - n_bytes;
	rest->next = block->next;
	block->next = rest;
	block->n_bytes = n_bytes;
}

static size_t
segment_size(size_t n_bytes)
{
	if (n_bytes <= MIB)
		return 2 * MIB;
	if (n_bytes < 10 * MIB)
		return 20 * MIB;
	return (n_bytes + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
}

static void *
take_locked(size_t n_bytes)
{
	size_t rounded = (n_bytes + 511) / 512 * 512;
	bool small = rounded <= MIB;
	struct block *block = find(rounded, small);

	if (!block && !segment_add(segment_size(rounded), small)) {
		empty_cache_locked();
		if (!segment_add(segment_size(rounded), small))
			return NULL;
	}
	block = block ? block : find(rounded, small);
	split(block, rounded, small);
	block->used = true;
	return block->address;
}

static void
merge(struct segment *segment)
{
	struct block *block = segment->first, *next;

	while ((next = block->next)) {
		if (block->used || next->used) {
			block = next;
			continue;
		}
		block->n_bytes += next->n_bytes;
		block->next = next->next;
		free(next);
	}
}

static void
give_locked(const char *address)
{
	for (struct segment *segment = segments; segment; segment = segment->next)
		for (struct block *block = segment->first; block; block = block->next)
			if (block->address == address && block->used) {
				block->used = false;
				merge(segment);
				return;
			}
	abort();
}

static void *
take(size_t n_bytes)
{
	void *pointer;

	pthread_mutex_lock(&lock);
	pointer = caches() ? take_locked(n_bytes) : ask(n_bytes);
	pthread_mutex_unlock(&lock);
	return pointer;
}

static void
give(void *pointer)
{
	if (!pointer)
		return;
	pthread_mutex_lock(&lock);
	if (caches())
		give_locked(pointer);
	else if (cudaFree(pointer))
		abort();
	pthread_mutex_unlock(&lock);
}

static void
empty_cache(void)
{
	pthread_mutex_lock(&lock);
	empty_cache_locked();
	pthread_mutex_unlock(&lock);
}

static void
figures_get(struct model_figures *ret_figures)
{
	pthread_mutex_lock(&lock);
	*ret_figures = figures;
	pthread_mutex_unlock(&lock);
}

__attribute__((visibility("default"))) const struct model *
model_get(void)
{
	static const struct model model = {
		.take = take,
		.give = give,
		.empty_cache = empty_cache,
		.figures = figures_get,
	};

	return &model;
}
