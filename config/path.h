/* SPDX-License-Identifier: MIT */
/*
 * Output-file patterns: %p pid, %h host, %r rank (torchrun, MPI, Slurm), %e program, %t time, %n counter, %%.
 *
 * Files are never overwritten: an existing name gets .1, .2 ... before its suffix. Opened with
 * O_CREAT|O_EXCL|O_NOFOLLOW|O_CLOEXEC, mode 0600; missing parent folders are created (0700).
 */
#pragma once

#include <stddef.h>

enum { CA_PATH_MAX = 1024 };

/* 0 if every % in the pattern is known and the longest expansion fits; -EINVAL, -ENAMETOOLONG. */
int ca_path_check(const char *pattern);
/* Expands the pattern into ret_path (size bytes, always terminated on success). 0, -EINVAL, -ENAMETOOLONG. */
int ca_path_expand(const char *pattern, char *ret_path, size_t size);
/* Expands and opens a new file for writing. Returns the descriptor (>= 0) or -errno; ret_path (may be NULL,
 * CA_PATH_MAX bytes) receives the name that was taken. */
int ca_path_open(const char *pattern, char *ret_path);
