/* SPDX-License-Identifier: MIT */
/*
 * The text of the file: lines of a word and its value, the last of which is the statistics of a
 * process that has no device yet.
 */
#include "shim/process/counts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "allocator/core/counts_file.h"
#include "allocator/core/stats.h"
#include "config/log.h"
#include "config/text.h"

enum {
	NOTE_HALF = 128,
	PLACE_MIN = 1 << 20, /* bytes; a process of 16 threads uses a tenth */
	TMPFS = 0x01021994,
};

/* In memory: a write to a page of a disk's file may wait for the disk, or fail. Most of the place
 * stays free for others. */
static bool
is_good_place(const char *folder)
{
	struct statfs info;

	if (statfs(folder, &info))
		return false;
	return info.f_type == TMPFS && info.f_bavail > info.f_blocks / 2 &&
	       (uint64_t)info.f_bavail * (uint64_t)info.f_bsize >= PLACE_MIN;
}

/* Process ids mean nothing elsewhere. */
static unsigned long long
pid_namespace(void)
{
	struct statx info;

	return statx(AT_FDCWD, "/proc/self/ns/pid", 0, STATX_INO, &info) ? 0 : info.stx_ino;
}

static int
write_text(char *text, size_t size, const char *file, const struct ca_emit_process *process)
{
	struct ca_emit_buffer report;
	int length = ca_text_format(text, size,
				    "cachealloc counts 1\npage %ld\nheader %d\nversion %s\n"
				    "pid %d\npid_namespace %llu\nfile %s\nnames" CA_STATS_NAMES
				    "\nreport ",
				    sysconf(_SC_PAGESIZE), CA_COUNTS_HEADER, CA_VERSION, getpid(),
				    pid_namespace(), file);
	int rc;

	if ((size_t)length >= size || strchr(file, '\n'))
		return -ENAMETOOLONG;
	report = (struct ca_emit_buffer){ .text = text + length, .size = size - (size_t)length };
	rc = ca_emit_stats_json(process, NULL, 0, ca_emit_to_buffer, &report);
	return rc ? rc : report.length < report.size ? 0 : -EMSGSIZE;
}

static int
create(const char *text)
{
	const char *folders[] = { "/dev/shm", secure_getenv("TMPDIR") };
	int rc = -ENOTSUP;

	for (unsigned i = 0; rc && i < 2; i++)
		if (folders[i] && folders[i][0] == '/' && is_good_place(folders[i]))
			rc = ca_counts_file_create(folders[i], text);
	return rc;
}

void
ca_counts_start(const char *file, const struct ca_emit_process *process)
{
	char text[CA_COUNTS_HEADER];
	int rc = write_text(text, sizeof(text), file, process);

	if (!rc)
		rc = create(text);
	if (rc)
		ca_info("CACHEALLOC_STATS: the last figures of a killed process are in no file: "
			"%s (errno %d)",
			ca_log_error_name(-rc), -rc);
}

void
ca_counts_note_device(unsigned ordinal, const char *name, const char *uuid)
{
	char *note = ca_counts_file_alloc("note", ordinal, 2 * NOTE_HALF, 2 * NOTE_HALF);

	if (!note)
		return;
	ca_text_format(note, NOTE_HALF, "%s", name ? name : "");
	ca_text_format(note + NOTE_HALF, NOTE_HALF, "%s", uuid ? uuid : "");
}
