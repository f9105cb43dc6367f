/* SPDX-License-Identifier: MIT */
/*
 * How much page-locked memory to keep: an eighth of the machine's memory, or of the limit of the
 * process's control group or one above it, divided by the ranks that a launcher started on this
 * host. Read once, without stdio.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "config/text.h"
#include "shim/pinned/internal.h"

enum { TEXT_BYTES = 4096, PATH_BYTES = 4608, SHARE = 8, RANKS_MAX = 4096 };

/* The file's beginning as a string; "" where there is none. */
static void
read_text(const char *path, char ret[TEXT_BYTES])
{
	/* not open(), read() and close(): those are cancellation points */
	int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	ssize_t length = fd < 0 ? 0 : syscall(SYS_read, fd, ret, TEXT_BYTES - 1);

	ret[length > 0 ? length : 0] = '\0';
	if (fd >= 0)
		syscall(SYS_close, fd);
}

/* 0: none, or no number such as "max". */
static uint64_t
number_of(const char *text)
{
	uint64_t number = 0;

	for (; *text >= '0' && *text <= '9' && number < UINT64_MAX / 16; text++)
		number = number * 10 + (uint64_t)(*text - '0');
	return number;
}

/* Of the group at `path` below `root` and those above it, the least limit. */
static uint64_t
least_limit(const char *root, char *path, const char *file)
{
	char name[PATH_BYTES], text[TEXT_BYTES];
	uint64_t least = UINT64_MAX, limit;
	char *slash;

	for (;;) {
		ca_text_format(name, sizeof(name), "%s%s/%s", root, path, file);
		read_text(name, text);
		limit = number_of(text);
		if (limit && limit < least)
			least = limit;
		slash = strrchr(path, '/');
		if (!slash)
			return least;
		*slash = '\0';
	}
}

/* True if the comma-separated list has the name. */
static bool
has_name(const char *list, const char *name)
{
	size_t length = strlen(name);

	for (;;) {
		size_t one = strcspn(list, ",");

		if (one == length && !memcmp(list, name, length))
			return true;
		if (!list[one])
			return false;
		list += one + 1;
	}
}

/* The group's path in the line that has the controller (version 2: "", and there is no other), cut
 * out of `text`, whose lines are number:controllers:path. NULL: none. */
static char *
group_path(char *text, const char *controller)
{
	char *next;

	for (char *line = text; *line; line = next) {
		char *controllers, *path;

		next = line + strcspn(line, "\n");
		if (*next)
			*next++ = '\0';
		controllers = strchr(line, ':');
		path = controllers ? strchr(controllers + 1, ':') : NULL;
		if (!path)
			continue;
		*path++ = '\0';
		if (has_name(controllers + 1, controller))
			return path;
	}
	return NULL;
}

static uint64_t
group_limit(void)
{
	char text[TEXT_BYTES];
	uint64_t least = UINT64_MAX, other;
	char *path;

	read_text("/proc/self/cgroup", text);
	path = group_path(text, "");
	if (path)
		least = least_limit("/sys/fs/cgroup", path, "memory.max");
	read_text("/proc/self/cgroup", text);
	path = group_path(text, "memory");
	if (!path)
		return least;
	other = least_limit("/sys/fs/cgroup/memory", path, "memory.limit_in_bytes");
	return other < least ? other : least;
}

/* Of a list by nodes, as 4(x2),3 of Slurm's is one, the first number: that of most nodes. */
static uint64_t
ranks_here(void)
{
	static const char *const names[] = { "LOCAL_WORLD_SIZE",     "OMPI_COMM_WORLD_LOCAL_SIZE",
					     "MPI_LOCALNRANKS",      "MV2_COMM_WORLD_LOCAL_SIZE",
					     "PMI_LOCAL_SIZE",       "SLURM_STEP_TASKS_PER_NODE",
					     "SLURM_NTASKS_PER_NODE" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const char *value = secure_getenv(names[i]);
		uint64_t ranks = value ? number_of(value) : 0;

		if (ranks && ranks <= RANKS_MAX)
			return ranks;
	}
	return 1;
}

/* Bytes of the machine; UINT64_MAX: not known. */
static uint64_t
machine_memory(void)
{
	static const char name[] = "MemTotal:";
	char text[TEXT_BYTES];
	const char *line;

	read_text("/proc/meminfo", text);
	line = strstr(text, name);
	if (!line)
		return UINT64_MAX;
	line += sizeof(name) - 1;
	return number_of(line + strspn(line, " \t")) << 10;
}

uint64_t
ca_pinned_default_cap(void)
{
	uint64_t limit = group_limit(), memory = machine_memory();
	uint64_t bytes = limit < memory ? limit : memory;

	return bytes == UINT64_MAX ? 0 : bytes / SHARE / ranks_here();
}
