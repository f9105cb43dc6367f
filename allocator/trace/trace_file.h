/* SPDX-License-Identifier: MIT */
/*
 * The file of a trace: made by its pattern, never overwritten; written only while it is the one
 * that was made and the process is the one that made it. One thread at a time; errno kept.
 */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "allocator/trace/trace.h"
#include "config/file.h"
#include "config/path.h"

struct ca_trace_file {
	int fd; /* -1: closed */
	struct ca_file_id id;
	pid_t pid;              /* that made it */
	char path[CA_PATH_MAX]; /* as the pattern gave it, from the root where that could be told */
};

/* With the header. 0 or -errno; a file whose header could not be written stays, closed. */
int ca_trace_file_create(const struct ca_trace_start *start, struct ca_trace_file *ret_file);
/*
 * Appends. 0 or -errno (what fits is written; then the end may be in the middle of a record);
 * -EBADF: the program closed the descriptor, and the file is no longer where it was; -ECHILD: this
 * is a copy of the process that made the file.
 */
int ca_trace_file_write(struct ca_trace_file *file, const void *data, size_t length);
void ca_trace_file_close(struct ca_trace_file *file);
