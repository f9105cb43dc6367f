/* SPDX-License-Identifier: MIT */
/*
 * pinned:cache. Page-locked host memory that the program freed is kept, and handed out again when
 * every use of it has finished.
 *
 * Memory is handed out for a request of its kind only: the same context, since it dies with that
 * (portable memory, too), the same flags, size class and NUMA node. To the driver it stays
 * allocated, with its class's size; to the program it has the requested size, and is unknown once
 * it is freed.
 *
 * Thread-safe, no malloc, errno kept; no lock is held in driver calls.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/config.h"
#include "shim/bind/cuda_abi.h"
#include "shim/bind/libcuda.h"

struct ca_context;
struct ca_stats;
struct ca_pinned_record;

/* cuMemAllocHost's memory is told from that of cuMemHostAlloc without flags by this flag. */
#define CA_PINNED_PLAIN (1u << 31)

struct ca_pinned_kind {
	struct ca_context *context;
	uint64_t bytes; /* of the size class */
	unsigned flags; /* of cuMemHostAlloc, or CA_PINNED_PLAIN */
	unsigned node;  /* of the allocating thread's processor */
};

/* True where pinned:cache is set and this process caches. */
extern _Atomic bool ca_pinned_on __attribute__((visibility("hidden")));

/* Before the process is served. */
void ca_pinned_start(const struct ca_config *config);
void ca_pinned_after_fork_child(void);

/* ---- pinned_records.c */

/* The kind of a request in the current context. False: the driver alone serves it. */
bool ca_pinned_kind_of(const struct ca_real *real, size_t bytes, unsigned flags,
		       struct ca_pinned_kind *ret_kind);
/* Freed memory of that kind that has been finished with; NULL: none. Waits for nothing. */
void *ca_pinned_take(const struct ca_pinned_kind *kind, size_t requested);
/* The driver gave `memory` of that kind. Without memory for a record it stays the driver's alone.
 */
void ca_pinned_enter(const struct ca_pinned_kind *kind, size_t requested, void *memory);
/* The program frees `memory`: 0: it is kept; -ENOENT, -E2BIG: the driver is to free it. */
int ca_pinned_give(void *memory);
/* The context of live memory that begins there; NULL: not ours. */
struct ca_context *ca_pinned_context(void *memory);
/*
 * Around the driver's own free. The record leaves the table before the call, since the address may
 * be another thread's afterwards; NULL: there is none. *ret_cached: the memory is freed already.
 */
struct ca_pinned_record *ca_pinned_free_begin(void *memory, bool *ret_cached);
void ca_pinned_free_end(struct ca_pinned_record *record, bool freed);
/* An accessor that is no stream is given [address, address + bytes), or the driver's state of that
 * memory is changed: the frees of memory there go to the driver. */
void ca_pinned_expose(uint64_t address, uint64_t bytes);

struct ca_pinned_view {
	uint64_t address;   /* of its first byte */
	uint64_t requested; /* bytes */
	uint64_t serial;    /* of the allocation */
};
/* Live memory of ours around `address`: 0; -ESTALE: unknown to the program; -ENOENT: not ours. */
int ca_pinned_look_up(uint64_t address, struct ca_pinned_view *ret_view);
/* The context is dead, and so is its memory. */
void ca_pinned_context_died(const struct ca_context *context);

/* The pinned_ figures of the device. */
void ca_pinned_stats(unsigned device, struct ca_stats *stats);
/* The calling thread, whose signal handler this may be, is in the middle of a call of these. */
bool ca_pinned_locked_here(void);
/* The highest ordinal of a device with such figures, plus 1. */
unsigned ca_pinned_device_count(void);

/* ---- pinned_marks.c */

/* The number of frees so far: a synchronisation that begins now covers as many. */
uint64_t ca_pinned_frees(void);
/* The context was synchronised by a call that began when there were `frees`. */
void ca_pinned_synchronized(struct ca_context *context, uint64_t frees);

/* ---- pinned_release.c */

/* Freed memory beyond the cap goes back, the oldest first. The driver may wait, as in a free. */
void ca_pinned_shrink(void);
/* All freed memory goes back, once everything submitted so far is seen to have finished, for which
 * the driver is asked for so long. Returns the bytes. */
uint64_t ca_pinned_release(uint64_t patience_ns);
#define CA_PINNED_PATIENCE_NS ((uint64_t)10000000000)
/* Bytes that went back to the driver from hands, of all threads, so far. */
uint64_t ca_pinned_given(void);
/* Waits while that is `given` still and another thread has memory in its hand, while nothing
 * captures, for as long as the clock shows less than `until_ns`. True: more went back. */
bool ca_pinned_await_others(uint64_t given, uint64_t until_ns);
/* ns of that clock. */
uint64_t ca_pinned_clock(void);
/* struct ca_driver: ca_pools_trim, and page-locked memory where all is to go. */
uint64_t ca_pinned_trim(void *self, unsigned device, uint64_t keep_bytes, bool graphs);
