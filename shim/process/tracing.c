/* SPDX-License-Identifier: MIT */
#include "shim/process/tracing.h"

#include <errno.h>

#include "config/log.h"
#include "config/text.h"
#include "shim/bind/libcuda.h"
#include "shim/driver/driver_table.h"
#include "shim/state/process.h"

struct ca_tracer *ca_tracing_tracer;

struct lines {
	char text[4096];
	size_t length;
};

/* A line that does not fit is left out. */
static void
add_line(void *arg, const char *line)
{
	struct lines *lines = arg;
	size_t room = sizeof(lines->text) - lines->length;
	size_t length = ca_text_format(lines->text + lines->length, room, "%s\n", line);

	if (length < room)
		lines->length += length;
	else
		lines->text[lines->length] = '\0';
}

void
ca_tracing_start(const struct ca_config *config, struct ca_heap *heap)
{
	struct lines settings = { .length = 0 };
	struct ca_trace_start start = {
		.pattern = config->trace_file,
		.program = program_invocation_short_name,
		.settings = settings.text,
		.clock = *ca_driver_table(),
		.counter = true,
	};
	struct ca_tracer *tracer;
	char shown[128];
	int r;

	if (!config->trace_file[0])
		return;
	ca_config_confirm(config, add_line, &settings);
	r = ca_tracer_open(&start, &tracer);
	if (r) {
		ca_warn("CACHEALLOC_TRACE: no file by the pattern '%s' can be made: %s (errno %d)",
			ca_text_escape(shown, sizeof(shown), config->trace_file),
			ca_log_error_name(-r), -r);
		return;
	}
	ca_info("the trace goes to %s", ca_tracer_path(tracer));
	ca_heap_set_tracer(heap, tracer);
	ca_tracing_tracer = tracer;
}

void
ca_tracing_note_device(CUdevice device, const char *name)
{
	const struct ca_real *real = ca_real();
	size_t bytes = 0;

	if (!ca_tracing_tracer || device < 0)
		return;
	if (!real || !real->cuDeviceTotalMem_v2 ||
	    CA_INSIDE(real->cuDeviceTotalMem_v2(&bytes, device)))
		bytes = 0;
	ca_tracer_device(ca_tracing_tracer, (unsigned)device, name, bytes);
}

void
ca_tracing_end(void)
{
	if (ca_tracing_tracer)
		ca_tracer_close(ca_tracing_tracer);
}

void
ca_tracing_after_fork_parent(void)
{
	if (ca_tracing_tracer)
		ca_tracer_fork(ca_tracing_tracer);
}

void
ca_tracing_after_fork_child(void)
{
	if (ca_tracing_tracer)
		ca_tracer_after_fork_child(ca_tracing_tracer);
	ca_tracing_tracer = NULL;
}
