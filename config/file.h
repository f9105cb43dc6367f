/* SPDX-License-Identifier: MIT */
/*
 * Descriptors of ours that stay open: their table belongs to the program, which may close
 * everything above 2 and open its own data under our number. So the file behind a descriptor is
 * remembered, and compared before each use; on a difference the descriptor is forgotten (not
 * closed: it is not ours).
 *
 * Thread-safe, no malloc, errno kept.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct ca_file_id {
	uint64_t device; /* 0, 0: where the kernel will not tell */
	uint64_t inode;
};

/* The file behind the descriptor. False: there is none. */
bool ca_file_identify(int fd, struct ca_file_id *ret_id);
/* True if the descriptor leads to that file. */
bool ca_file_is(int fd, const struct ca_file_id *id);
/* Moves a descriptor above the numbers that programs use themselves, if it can.
 * Returns the one to use. */
int ca_file_dup_high(int fd);
