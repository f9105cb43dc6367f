/* SPDX-License-Identifier: MIT */
/*
 * Output-file patterns: %p pid, %h host, %r rank (torchrun, MPI, Slurm, PALS, Flux, JSM), %e
 * program, %t time (seconds since 1970), %n counter (1, 2, ... within the process), %%.
 *
 * The rank is the first of these that holds a number: RANK, OMPI_COMM_WORLD_RANK, PMIX_RANK,
 * PMI_RANK, MV2_COMM_WORLD_RANK, PALS_RANKID, FLUX_TASK_RANK, JSM_NAMESPACE_RANK, SLURM_PROCID,
 * LOCAL_RANK; "0" where there is none. It is read once, at the first check or expansion of a
 * pattern with %r. Host, program and rank are reduced to [A-Za-z0-9._-] without a leading dot, so
 * none of them can lead into another folder.
 *
 * Files are never overwritten: an existing file (or link) gets .1, .2 ... before its suffix. Opened
 * with O_CREAT|O_EXCL|O_NOFOLLOW|O_CLOEXEC, mode 0600; missing parent folders are created (0700).
 * Thread-safe, no malloc, no stdio, errno kept.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { CA_PATH_MAX = 1024 };

/*
 * 0 if the pattern can name a file: every % is known, it does not end in '/', it does not lead into
 * /proc, /sys or /dev (but /dev/shm), and the longest expansion fits in CA_PATH_MAX. -EINVAL (a %),
 * -EISDIR (the end), -EPERM (the place), -ENAMETOOLONG.
 */
int ca_path_check(const char *pattern);
/* Is %r the number of a launcher's? */
bool ca_path_has_rank(void);
/* Expands the pattern into ret_path (size bytes, always terminated on success).
 * 0, -EINVAL, -ENAMETOOLONG. */
int ca_path_expand(const char *pattern, char *ret_path, size_t size);
/*
 * Expands and opens a new file for writing. Returns the descriptor (>= 0) or -errno; ret_path (may
 * be NULL, CA_PATH_MAX bytes) receives the name that was taken. -EEXIST: the name is a folder or a
 * device, or all of .1 to .9999 are taken.
 */
int ca_path_open(const char *pattern, char *ret_path);
/* The same; *ret_wanted (may be NULL, CA_PATH_MAX bytes) receives the name by the pattern where
 * that was taken already, else "". */
int ca_path_open_as(const char *pattern, char *ret_path, char *ret_wanted);
/* The same as ca_path_open(); where the name was taken already, one warning tells both names, for
 * the user of `variable` may look into the older file. `ret_path` is needed. */
int ca_path_open_told(const char *variable, const char *pattern, char *ret_path);
