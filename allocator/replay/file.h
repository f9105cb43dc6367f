/* SPDX-License-Identifier: MIT */
/* A whole file in memory: mapped, or read where that cannot be done (a pipe). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ca_replay_file {
	uint8_t *data;
	size_t size;
	bool mapped;
};

/* "-" is standard input. 0 or -errno. A file that is mapped must not shrink meanwhile. */
int ca_replay_file_read(const char *path, struct ca_replay_file *ret_file);
void ca_replay_file_clear(struct ca_replay_file *file);
