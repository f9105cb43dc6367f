/* SPDX-License-Identifier: MIT */
/*
 * Counts that outlive the process: what is counted stands in pages shared with a file in memory
 * (tmpfs), so that a killed process leaves its last figures there and counting costs nothing more.
 * `cachealloc stats` reads it (scripts/cachealloc_cli/counts.py).
 *
 * The file begins with a text of so many pages, then has a page for each record: see struct
 * ca_counts_page. Its name is private, its mode 0400 once it is mapped, its blocks are allocated
 * before they are mapped: neither a full disk nor a file that an ordinary user cuts off makes the
 * program fault. Nothing but counts is in it: locks, lists and lengths are in memory of the
 * process's own.
 *
 * Thread-safe, errno kept. There is one file a process; a forked child has none until it creates
 * its own.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	CA_COUNTS_HEADER = 8192,   /* bytes of the text, at least a page */
	CA_COUNTS_RECORDS = 512,   /* with more threads than that the file is given up */
	CA_COUNTS_SAVED = 640,     /* of a device's counts while others are added */
	CA_COUNTS_SAVED_PART = 128 /* of what is added */
};

/* At the beginning of a record's page; the counts are at its end. */
struct ca_counts_page {
	uint32_t device; /* ordinal */
	uint32_t number; /* of the page, from 0 */
	uint32_t bytes;  /* of the counts */
	uint32_t saved_bytes;
	/* Odd while the counts of the record `updated` are added to these and zeroed: what both
	 * were before is saved. */
	_Atomic uint64_t updates;
	uint64_t updated;
	unsigned char saved[CA_COUNTS_SAVED];
	unsigned char saved_part[CA_COUNTS_SAVED_PART];
	char names[]; /* the kind of record and the counts in their order, words; NUL */
};

/* Creates the file with that text, of at most CA_COUNTS_HEADER - 1 bytes. The folder's file system
 * allocates blocks for good. 0, or -errno: counts stay in ordinary memory. */
int ca_counts_file_create(const char *folder, const char *text);
/* Removes it, or makes it useless; what is counted stays where it is. */
void ca_counts_file_remove(void);
/* The child has no file, and zeros where the parent counts. */
void ca_counts_file_after_fork_child(void);

/* `bytes` zeroed bytes on a multiple of 64, of which the first `counted`, a multiple of 64 and
 * counts of 8 bytes each, are in the file. The rest is at most a page. NULL: there is no file, or
 * it had no room and was removed. Never freed. */
void *ca_counts_file_alloc(const char *names, unsigned device, size_t counted, size_t bytes);
/* The page of such memory. */
struct ca_counts_page *ca_counts_file_page(void *memory);

/* Brackets the adding of `part`, the counts of a record or NULL for others, to `counts`, which are
 * of the page. One at a time for a page. */
void ca_counts_update_begin(struct ca_counts_page *page, const void *counts, size_t bytes,
			    const struct ca_counts_page *part, const void *part_counts,
			    size_t part_bytes);
void ca_counts_update_end(struct ca_counts_page *page);
