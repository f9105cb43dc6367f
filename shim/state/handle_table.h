/* SPDX-License-Identifier: MIT */
/*
 * A table of the driver's handles, with one word of ours for each.
 *
 * Sharded by a hash of the handle, each shard a table with open addressing under a lock of its own
 * that is held for a few loads. The words are the owner's; a record that one points to must outlive
 * its entry, since a reader may still hold it.
 *
 * Thread-safe; no malloc; errno kept. Zero-initialised: empty.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ca_handle_entry {
	uintptr_t handle; /* 0: free */
	uint64_t word;
};

enum { CA_HANDLE_SHARDS = 64 };

struct ca_handles {
	struct {
		_Alignas(64) _Atomic bool locked;
		size_t capacity; /* entries, a power of two; 0: none yet */
		size_t used;
		struct ca_handle_entry *entries;
	} shard[CA_HANDLE_SHARDS];
};

/* The word of `handle`; 0: it is not there. */
uint64_t ca_handles_get(struct ca_handles *handles, const void *handle);
/* Enters `word` (not 0). 0, and *ret_old what was there before (0: nothing); -ENOMEM; -EINVAL:
 * `handle` is NULL. */
int ca_handles_put(struct ca_handles *handles, const void *handle, uint64_t word,
		   uint64_t *ret_old);
/* Adds bits to the word of a handle that is there. */
void ca_handles_add_bits(struct ca_handles *handles, const void *handle, uint64_t bits);
/* Takes `handle` out; its word, or 0. */
uint64_t ca_handles_remove(struct ca_handles *handles, const void *handle);
/* Takes out every entry for which `leaves` answers true. It is called with the shard's lock. */
void ca_handles_scan(struct ca_handles *handles, bool (*leaves)(uint64_t word, void *arg),
		     void *arg);
/* In a forked child: nothing is known. */
void ca_handles_after_fork_child(struct ca_handles *handles);
