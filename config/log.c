/* SPDX-License-Identifier: MIT */
/*
 * Log lines without locks.
 *
 * A line is put together on the stack and goes out in one write(2), so lines of several threads
 * never mix. Where it goes is one atomic number: a descriptor, or one of two negative states. The
 * first line that finds UNOPENED wins the right to open the file; others wait for it, but only a
 * little (they may be a signal handler on top of the opener) and then use stderr.
 *
 * The descriptor lives in a table that belongs to the program (config/file.h). When it no longer
 * leads to our file, a new one is opened.
 */
#include "config/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "config/file.h"
#include "config/path.h"
#include "config/text.h"

enum {
	LINE_MAX_BYTES = 1024,
	OPENS_MAX = 8,      /* then stderr: the program keeps closing our file */
	OPENING_WAITS = 50, /* of 1 ms each */
	TARGET_UNOPENED = -1,
	TARGET_OPENING = -2,
};

static _Atomic int log_level = CA_LOG_WARN;
static _Atomic int log_target = STDERR_FILENO; /* descriptor or TARGET_* */
static _Atomic int log_opens;
static _Atomic uint64_t log_device, log_inode; /* of the open file */
static _Atomic uint64_t log_lines[CA_LOG_DEBUG + 1];
static char log_pattern[CA_PATH_MAX]; /* published by log_target */

static const char *
level_name(enum ca_log_level level)
{
	static const char names[][8] = { "off", "error", "warning", "info", "debug" };

	return names[level];
}

const char *
ca_log_error_name(int error)
{
	switch (error) {
	case EACCES:
		return "permission denied";
	case EEXIST:
		return "name is taken";
	case EFBIG:
		return "file too large";
	case EINVAL:
		return "bad pattern";
	case EISDIR:
		return "is a folder";
	case EMFILE:
	case ENFILE:
		return "too many open files";
	case ELOOP:
		return "a link";
	case ENAMETOOLONG:
		return "name too long";
	case ENOENT:
		return "no such folder";
	case ENOSPC:
		return "no space left";
	case ENOTDIR:
		return "not a folder";
	case EROFS:
		return "read-only file system";
	default:
		return "error";
	}
}

void
ca_log_configure(enum ca_log_level level, const char *file_pattern)
{
	atomic_store(&log_level, (int)level);
	for (unsigned i = 0; i <= CA_LOG_DEBUG; i++)
		atomic_store(&log_lines[i], 0);
	atomic_store(&log_opens, 0);
	ca_text_format(log_pattern, sizeof(log_pattern), "%s", file_pattern);
	atomic_store(&log_target, log_pattern[0] ? TARGET_UNOPENED : STDERR_FILENO);
}

static bool
file_is_ours(int fd)
{
	struct ca_file_id id = { atomic_load(&log_device), atomic_load(&log_inode) };

	return ca_file_is(fd, &id);
}

void
ca_log_after_fork_child(void)
{
	int fd = atomic_load(&log_target);

	if (!log_pattern[0])
		return;
	if (fd > STDERR_FILENO && file_is_ours(fd))
		syscall(SYS_close, fd);
	for (unsigned i = 0; i <= CA_LOG_DEBUG; i++)
		atomic_store(&log_lines[i], 0);
	atomic_store(&log_opens, 0);
	atomic_store(&log_target, TARGET_UNOPENED);
}

bool
ca_log_enabled(enum ca_log_level level)
{
	return level != CA_LOG_OFF &&
	       (int)level <= atomic_load_explicit(&log_level, memory_order_relaxed);
}

/* "cachealloc[7841 r3]: warning: " */
static size_t
prefix_write(char *line, size_t size, enum ca_log_level level)
{
	char rank[16];

	if (ca_path_has_rank() && !ca_path_expand("%r", rank, sizeof(rank)))
		return ca_text_format(line, size, "cachealloc[%d r%s]: %s: ", (int)getpid(), rank,
				      level_name(level));
	return ca_text_format(line, size, "cachealloc[%d]: %s: ", (int)getpid(), level_name(level));
}

__attribute__((format(printf, 2, 3))) static void
stderr_line(enum ca_log_level level, const char *format, ...)
{
	char line[LINE_MAX_BYTES];
	size_t length = prefix_write(line, sizeof(line), level);
	va_list args;

	va_start(args, format);
	length += ca_text_format_va(line + length, sizeof(line) - length, format, args);
	va_end(args);
	if (length > sizeof(line) - 1)
		length = sizeof(line) - 1;
	line[length++] = '\n';
	ca_text_write(STDERR_FILENO, line, length);
}

/* Opens the file and publishes it; on failure says so once and publishes stderr. */
static int
file_open(void)
{
	char shown[128], path[CA_PATH_MAX], wanted[CA_PATH_MAX];
	struct ca_file_id id = { 0, 0 };
	int fd, opens = atomic_fetch_add(&log_opens, 1);

	fd = opens < OPENS_MAX ? ca_path_open_as(log_pattern, path, wanted) : -EMFILE;
	if (fd >= 0 && wanted[0] && !opens && ca_log_enabled(CA_LOG_WARN))
		stderr_line(CA_LOG_WARN,
			    "CACHEALLOC_LOG_FILE: '%.400s' exists already and is left as it is: "
			    "this goes "
			    "to '%.400s'",
			    wanted, path);
	if (fd >= 0) {
		fd = ca_file_dup_high(fd);
		ca_file_identify(fd, &id);
		atomic_store(&log_device, id.device);
		atomic_store(&log_inode, id.inode);
	} else {
		stderr_line(CA_LOG_WARN,
			    "CACHEALLOC_LOG_FILE: '%s' cannot be opened: %s (errno %d); "
			    "lines go to stderr",
			    ca_text_escape(shown, sizeof(shown), log_pattern),
			    ca_log_error_name(-fd), -fd);
		fd = STDERR_FILENO;
	}
	atomic_store(&log_target, fd);
	return fd;
}

/* The descriptor that the next line goes to. */
static int
target_get(void)
{
	for (int i = 0; i < OPENING_WAITS; i++) {
		static const struct timespec millisecond = { .tv_nsec = 1000000 };
		int target = atomic_load(&log_target);

		if (target == STDERR_FILENO)
			return target;
		if (target == TARGET_OPENING) {
			syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &millisecond, NULL);
			continue;
		}
		if (target >= 0 && file_is_ours(target))
			return target;
		if (atomic_compare_exchange_strong(&log_target, &target, TARGET_OPENING))
			return file_open();
	}
	return STDERR_FILENO;
}

/* Ends the text in "..." where it was cut, keeps it on one line, adds the newline.
 * Returns the new length. */
static size_t
line_finish(char *line, size_t size, size_t length)
{
	if (length > size - 2) {
		length = size - 2;
		for (size_t i = length - 3; i < length; i++)
			line[i] = '.';
	}
	for (size_t i = 0; i < length; i++)
		if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
			line[i] = ' ';
	line[length++] = '\n';
	return length;
}

void
ca_log(enum ca_log_level level, const char *format, ...)
{
	char line[LINE_MAX_BYTES];
	int saved = errno;
	uint64_t number;
	size_t length;
	va_list args;

	if (!ca_log_enabled(level))
		return;
	number = atomic_fetch_add_explicit(&log_lines[level], 1, memory_order_relaxed);
	if (number <= CA_LOG_CAP) {
		length = prefix_write(line, sizeof(line), level);
		if (number < CA_LOG_CAP) {
			va_start(args, format);
			length += ca_text_format_va(line + length, sizeof(line) - length, format,
						    args);
			va_end(args);
		} else {
			length += ca_text_format(line + length, sizeof(line) - length,
						 "%d lines of this level so far; no more are shown",
						 CA_LOG_CAP);
		}
		length = line_finish(line, sizeof(line), length);
		ca_text_write(target_get(), line, length);
	}
	errno = saved;
}
