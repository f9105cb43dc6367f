/* SPDX-License-Identifier: MIT */
#include "config/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { FD_FIRST = 512 }; /* above the numbers that programs use themselves */

bool
ca_file_identify(int fd, struct ca_file_id *ret_id)
{
	struct statx info = { 0 };
	int saved = errno;
	bool none;

	/* an empty path asks about the descriptor; fstat() would need a glibc of 2.33 */
	none = statx(fd, "", AT_EMPTY_PATH, STATX_INO, &info) && errno == EBADF;
	errno = saved;
	if (none)
		return false;
	ret_id->device = ((uint64_t)info.stx_dev_major << 32) | info.stx_dev_minor;
	ret_id->inode = info.stx_ino;
	return true;
}

bool
ca_file_is(int fd, const struct ca_file_id *id)
{
	struct ca_file_id now;

	return ca_file_identify(fd, &now) && now.device == id->device && now.inode == id->inode;
}

int
ca_file_dup_high(int fd)
{
	int saved = errno;
	int high = fcntl(fd, F_DUPFD_CLOEXEC, FD_FIRST);

	if (high >= 0) {
		syscall(SYS_close, fd);
		fd = high;
	}
	errno = saved;
	return fd;
}
