/* SPDX-License-Identifier: MIT */
/*
 * One formatter for the file, the exported function and the tests. It appends to a buffer and goes
 * on counting when that is full, as snprintf does, so a caller can ask for the length first.
 */
#include "tests/sim/stats.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/sim/call.h"
#include "tests/sim/engine.h"
#include "tests/sim/names.h"

struct text {
	char *buffer; /* may be NULL when n is 0 */
	size_t n;     /* its size */
	size_t at;    /* length so far, also beyond n */
};

__attribute__((format(printf, 2, 3))) static void
text_add(struct text *text, const char *format, ...)
{
	size_t left = text->at < text->n ? text->n - text->at : 0;
	va_list args;

	va_start(args, format);
	text->at += (size_t)vsnprintf(left ? text->buffer + text->at : NULL, left, format, args);
	va_end(args);
}

/* "key":{"name":count,...} of the names whose count is not 0 */
static void
counts_add(struct text *text, const char *key, uint64_t (*count)(int name))
{
	const char *comma = "";

	text_add(text, "\"%s\":{", key);
	for (int i = 0; i < SIMB_NAMES; i++) {
		uint64_t n = count(i);

		if (!n)
			continue;
		text_add(text, "%s\"%s\":%llu", comma, simb_names[i].symbol, (unsigned long long)n);
		comma = ",";
	}
	text_add(text, "}");
}

size_t
/* NOLINTNEXTLINE(readability-non-const-parameter): written to through the struct */
simb_stats_format(char *buffer, size_t n_buffer)
{
	const struct simb_knobs *knobs = simb_knobs();
	struct text text = { buffer, n_buffer, 0 };
	enum simb_phase phase = simb_phase();
	/* In a forked child the engine's lock may be held by a thread that is not there. */
	bool engine = phase == SIMB_PHASE_UP || phase == SIMB_PHASE_DOWN;

	text_add(&text, "{");
	counts_add(&text, "calls", simb_calls);
	text_add(&text, ",\"peak_bytes\":[");
	for (int i = 0; i < knobs->n_devices; i++)
		text_add(&text, "%s%llu", i ? "," : "",
			 engine ? (unsigned long long)sim_peak_bytes(i) : 0ULL);
	text_add(&text, "],\"used_bytes\":[");
	for (int i = 0; i < knobs->n_devices; i++)
		text_add(&text, "%s%llu", i ? "," : "",
			 engine ? (unsigned long long)sim_used_bytes(i) : 0ULL);
	text_add(&text, "],\"races\":%llu",
		 engine ? (unsigned long long)sim_races_counted() : 0ULL);
	text_add(&text, ",\"injected\":%llu,", (unsigned long long)simb_injected());
	counts_add(&text, "not_built", simb_calls_missing);
	text_add(&text, ",\"driver_version\":%d,\"latency\":\"%s\",\"pid\":%d}\n",
		 knobs->driver_version, knobs->latency_source, (int)getpid());
	return text.at;
}

int
simb_stats_write(const char *pattern)
{
	char path[SIMB_PATH_MAX];
	size_t n_buffer = simb_stats_format(NULL, 0) + 4096; /* other threads may still count */
	size_t n, at = 0;
	char *buffer = malloc(n_buffer);
	int fd, rc = simb_path_expand(pattern, (int)getpid(), path, sizeof(path));

	if (!buffer || rc)
		goto out;
	n = simb_stats_format(buffer, n_buffer);
	if (n >= n_buffer)
		n = n_buffer - 1;
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0) {
		rc = -errno;
		fprintf(stderr, "simcuda: cannot write SIMCUDA_STATS to %s: %s\n", path,
			strerror(-rc));
		goto out;
	}
	while (at < n) {
		ssize_t done = write(fd, buffer + at, n - at);

		if (done <= 0)
			break;
		at += (size_t)done;
	}
	rc = at < n ? -EIO : 0;
	close(fd);
out:
	free(buffer);
	return rc;
}

__attribute__((visibility("default"))) size_t
simcuda_stats(char *buffer, size_t n_buffer)
{
	return simb_stats_format(buffer, n_buffer);
}

__attribute__((visibility("default"))) unsigned long long
simcuda_step(unsigned long long n)
{
	return simb_phase() == SIMB_PHASE_UP ? sim_step(n) : 0;
}

__attribute__((visibility("default"))) void
simcuda_touch(unsigned long long address, size_t n_bytes, int writes)
{
	if (simb_phase() == SIMB_PHASE_UP)
		sim_accessor_touch(address, n_bytes, writes != 0);
}
