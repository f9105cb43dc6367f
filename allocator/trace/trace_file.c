/* SPDX-License-Identifier: MIT */
/*
 * The descriptor stays open, because a program that goes to another folder or root could not name
 * the file again; but its number may be another file's by now (config/file.h). Then the file is
 * opened once more, by its name from the root.
 */
#include "allocator/trace/trace_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "config/text.h"

/* A longer text is cut; the settings are at most some lines of file names. */
enum { FIELD_MAX = 6 * 1024, FIELDS = 3 };

struct head {
	struct ca_trace_header fixed;
	uint8_t fields[FIELDS * (sizeof(struct ca_trace_field) + FIELD_MAX)];
};

_Static_assert(sizeof(struct ca_trace_header) % 8 == 0, "fields follow at once");
_Static_assert(sizeof(struct ca_trace_record) == 24, "as documented");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are written as they are");

static void
put_field(struct head *head, enum ca_trace_tag tag, const char *text)
{
	size_t length = text ? strlen(text) : 0, kept = length < FIELD_MAX ? length : FIELD_MAX;
	struct ca_trace_field field = { .tag = tag, .length = (uint32_t)kept };
	uint8_t *at = (uint8_t *)head + head->fixed.header_bytes;

	if (!kept)
		return;
	memcpy(at, &field, sizeof(field));
	memcpy(at + sizeof(field), text, kept);
	head->fixed.header_bytes += (uint32_t)(sizeof(field) + (kept + 7) / 8 * 8);
}

static uint64_t
unix_ns(void)
{
	struct timespec now = { 0 };

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static int
write_head(const struct ca_trace_start *start, int fd)
{
	struct head head = {
		.fixed = {
			.byte_order = CA_TRACE_BYTE_ORDER,
			.version = CA_TRACE_VERSION,
			.minor = CA_TRACE_MINOR,
			.header_bytes = sizeof(struct ca_trace_header),
			.fixed_bytes = sizeof(struct ca_trace_header),
			.record_bytes = sizeof(struct ca_trace_record),
			.tick_ns = 1,
			.start_ns = start->clock.clock_ns(start->clock.self),
			.start_unix_ns = unix_ns(),
			.pid = (uint32_t)getpid(),
			.parent_pid = (uint32_t)getppid(),
		},
	};

	memcpy(head.fixed.magic, CA_TRACE_MAGIC, sizeof(head.fixed.magic));
	put_field(&head, CA_TRACE_FIELD_LIBRARY, CA_VERSION);
	put_field(&head, CA_TRACE_FIELD_PROGRAM, start->program);
	put_field(&head, CA_TRACE_FIELD_SETTINGS, start->settings);
	return ca_text_write(fd, (const char *)&head, head.fixed.header_bytes);
}

/* `path` from the root, so that it holds when the program goes to another folder. */
static void
make_absolute(char path[CA_PATH_MAX])
{
	char folder[CA_PATH_MAX], whole[CA_PATH_MAX];

	if (path[0] == '/' || syscall(SYS_getcwd, folder, sizeof(folder)) < 0)
		return;
	if (ca_text_format(whole, sizeof(whole), "%s/%s", folder, path) < sizeof(whole))
		memcpy(path, whole, sizeof(whole));
}

int
ca_trace_file_create(const struct ca_trace_start *start, struct ca_trace_file *ret_file)
{
	struct ca_trace_file file = { .pid = getpid() };
	int saved = errno;
	int fd = ca_path_open_told("CACHEALLOC_TRACE", start->pattern, file.path), r;

	if (fd < 0)
		return fd;
	file.fd = ca_file_dup_high(fd);
	ca_file_identify(file.fd, &file.id);
	make_absolute(file.path);
	r = write_head(start, file.fd);
	if (r)
		ca_trace_file_close(&file);
	else
		*ret_file = file;
	errno = saved;
	return r;
}

/* The descriptor is somebody else's now: one more by the name. */
static int
open_again(struct ca_trace_file *file)
{
	/* not open(): that is a cancellation point */
	long fd = syscall(SYS_openat, AT_FDCWD, file->path,
			  O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC);

	file->fd = -1;
	if (fd < 0)
		return -EBADF;
	if (!ca_file_is((int)fd, &file->id)) {
		syscall(SYS_close, (int)fd);
		return -EBADF;
	}
	file->fd = ca_file_dup_high((int)fd);
	return 0;
}

int
ca_trace_file_write(struct ca_trace_file *file, const void *data, size_t length)
{
	int saved = errno;
	int r = 0;

	if (getpid() != file->pid)
		return -ECHILD;
	if (!ca_file_is(file->fd, &file->id))
		r = open_again(file);
	if (!r)
		r = ca_text_write(file->fd, data, length);
	errno = saved;
	return r;
}

void
ca_trace_file_close(struct ca_trace_file *file)
{
	int saved = errno;

	if (file->fd >= 0 && ca_file_is(file->fd, &file->id))
		syscall(SYS_close, file->fd);
	file->fd = -1;
	errno = saved;
}
