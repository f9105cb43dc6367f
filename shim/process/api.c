/* SPDX-License-Identifier: MIT */
#include "shim/process/cachealloc.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "allocator/api/stats_text.h"
#include "config/config.h"
#include "shim/bind/hooks.h"
#include "shim/bind/scope.h"
#include "shim/process/lifecycle.h"
#include "shim/process/site_conf.h"
#include "shim/process/stats_file.h"

CA_EXPORT const char *
cachealloc_version(void)
{
	/* `cachealloc version` and packagers find this text in the file, without loading it */
	static const char text[] = "cachealloc " CA_VERSION;

	return text + sizeof("cachealloc");
}

static const char *
get_environment(void *arg, const char *name)
{
	return secure_getenv(name);
}

static void
add_line(void *arg, const char *line)
{
	ca_emit_to_buffer(arg, line, strlen(line));
	ca_emit_to_buffer(arg, "\n", 1);
}

CA_EXPORT size_t
cachealloc_check_settings(char *text, size_t size)
{
	struct ca_emit_buffer buffer = { .text = text, .size = size };
	struct ca_config config;

	ca_emit_to_buffer(&buffer, "", 0);
	ca_config_load(&config, get_environment, NULL, environ, add_line, &buffer);
	return buffer.length;
}

CA_EXPORT size_t
cachealloc_site_conf(char *text, size_t size)
{
	struct ca_emit_buffer buffer = { .text = text, .size = size };

	ca_emit_to_buffer(&buffer, "", 0);
	ca_site_conf_describe(add_line, &buffer);
	return buffer.length;
}

CA_EXPORT uint64_t
cachealloc_trim(uint64_t keep_bytes)
{
	struct ca_process *process = ca_process();
	CA_KEEP_ERRNO;

	return process && process->caches ? ca_trim(process->heap, keep_bytes) : 0;
}

CA_EXPORT size_t
cachealloc_stats_json(char *text, size_t size)
{
	struct ca_process *process = ca_process();
	CA_KEEP_ERRNO;
	size_t length = 0;

	if (process && ca_dump_json(process->heap, text, size, &length))
		length = 0;
	return length;
}
