/* SPDX-License-Identifier: MIT */
#include "shim/cachealloc.h"

#include <errno.h>

#include "shim/dump.h"
#include "shim/hooks.h"
#include "shim/process.h"

CA_EXPORT const char *
cachealloc_version(void)
{
	/* `cachealloc version` and packagers find this text in the file, without loading it */
	static const char text[] = "cachealloc " CA_VERSION;

	return text + sizeof("cachealloc");
}

CA_EXPORT uint64_t
cachealloc_trim(uint64_t keep_bytes)
{
	struct ca_process *process = ca_process();
	int saved = errno;
	uint64_t given = 0;

	if (process && process->serves)
		given = ca_trim(process->heap, keep_bytes);
	errno = saved;
	return given;
}

CA_EXPORT size_t
cachealloc_stats_json(char *text, size_t size)
{
	struct ca_process *process = ca_process();
	int saved = errno;
	size_t length = 0;

	if (process && ca_dump_json(process->heap, text, size, &length))
		length = 0;
	errno = saved;
	return length;
}
