/* SPDX-License-Identifier: MIT */
/* A program that refuses the library memory of the host, as long as `refuses`. */
#pragma once

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile bool refuses;

/* In front of the C library's, for the driver and the library, too. */
__attribute__((visibility("default"))) void *
mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset)
{
	Dl_info info;

	if (refuses && dladdr(__builtin_return_address(0), &info) && info.dli_fname &&
	    strstr(info.dli_fname, "libcachealloc")) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	return (void *)syscall(SYS_mmap, address, bytes, protection, flags, file, offset);
}
