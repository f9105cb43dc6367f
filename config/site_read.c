/* SPDX-License-Identifier: MIT */
/*
 * The descriptor is opened first and looked at then, so that what was judged is what is read. It is
 * opened without waiting: a pipe that nobody writes to must not hold a program up.
 *
 * System calls are made directly: open() and read() are cancellation points, and other preloaded
 * libraries have their own.
 */
#include "config/site.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "config/log.h"

/* NULL: the file may be used. fstat() would need a glibc of 2.33. */
static const char *
fault_of(int fd, size_t size)
{
	const unsigned wanted = STATX_TYPE | STATX_MODE | STATX_UID | STATX_SIZE;
	struct statx info = { 0 };

	if (statx(fd, "", AT_EMPTY_PATH, wanted, &info) || (info.stx_mask & wanted) != wanted)
		return "its owner cannot be told";
	if (!S_ISREG(info.stx_mode))
		return "it is not a regular file";
	if (info.stx_uid)
		return "it does not belong to root";
	if (info.stx_mode & (S_IWGRP | S_IWOTH))
		return "others than root may write to it";
	return info.stx_size > size ? "it is larger than 64 KiB" : NULL;
}

/* Bytes read, at most `size`, or -errno. */
static long
read_whole(int fd, char *text, size_t size)
{
	size_t length = 0;
	long n = 1;

	while (n && length < size) {
		n = syscall(SYS_read, fd, text + length, size - length);
		if (n < 0 && errno != EINTR)
			return -errno;
		length += n > 0 ? (size_t)n : 0;
	}
	return (long)length;
}

static const char *
open_fault(int error)
{
	if (error == ELOOP)
		return "it is a symbolic link";
	if (error == ENXIO || error == ENODEV)
		return "it is not a regular file";
	return ca_log_error_name(error);
}

int
ca_site_read(const char *path, char *text, size_t size, size_t *ret_length, const char **ret_reason)
{
	const int flags = O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
	int saved = errno, error = 0;
	long fd = syscall(SYS_openat, AT_FDCWD, path, flags), length = 0;

	*ret_reason = NULL;
	if (fd < 0) {
		error = errno == ENOTDIR ? ENOENT : errno;
		*ret_reason = error == ENOENT ? NULL : open_fault(error);
		errno = saved;
		return -error;
	}
	*ret_reason = fault_of((int)fd, size);
	if (*ret_reason)
		error = EPERM;
	else
		length = read_whole((int)fd, text, size);
	if (length < 0) {
		error = (int)-length;
		*ret_reason = ca_log_error_name(error);
	}
	syscall(SYS_close, fd);
	errno = saved;
	if (!error)
		*ret_length = (size_t)length;
	return -error;
}
