/* SPDX-License-Identifier: MIT */
/*
 * Statistics as JSON (format "stats", format_version 1) and as a table of at most 80 columns for
 * people. No malloc, no stdio, no floating point: text goes out in pieces through `write`.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "allocator/core/stats.h"

/* Takes `length` bytes. 0, or -errno, which ends the output and is returned. */
typedef int ca_emit_write_fn(void *arg, const char *text, size_t length);

struct ca_emit_device {
	unsigned index;   /* ordinal */
	const char *name; /* UTF-8; NULL: unknown */
	const char *uuid; /* "GPU-..."; NULL: unknown */
	const struct ca_stats *stats;
};

/* A reason, and what changes it: lines to be read in the table; "" is left out. */
enum { CA_EMIT_NOTE = 72 };
struct ca_emit_note {
	char why[CA_EMIT_NOTE];
	char change[2][CA_EMIT_NOTE];
};

/* Whose figures these are, and from when. */
struct ca_emit_identity {
	uint64_t time_unix_ns; /* since 1970 */
	uint64_t elapsed_ns;   /* since the library's first hooked call */
	uint64_t seq;          /* 1, 2, ... of the process, each time its statistics are written */
	long pid, parent_pid;
	const char *host, *program;
	const char *rank;    /* a number; NULL: no launcher has set one */
	const char *command; /* the program's words, as far as they fit */
	const char *conf;    /* CACHEALLOC_CONF; NULL: unset */
	int driver_version;  /* cuDriverGetVersion; 0: unknown */
};

struct ca_emit_process {
	const struct ca_emit_identity *identity; /* for JSON; NULL: left out */
	const char *program;                     /* NULL: left out */
	long pid;
	uint64_t elapsed_ns;          /* since the library's first hooked call */
	const char *site_conf;        /* path of the site's file in effect; NULL: none is */
	struct ca_emit_note passed;   /* why requests went straight to the driver */
	struct ca_emit_note finished; /* the setting by which only finished memory is reused */
};

/* One line, ended by a newline. */
int ca_emit_stats_json(const struct ca_emit_process *process, const struct ca_emit_device *devices,
		       unsigned count, ca_emit_write_fn *write, void *arg);

/* Columns current, peak and total for each device, then calls and time; then, where there were any,
 * what was passed on, what the driver served itself, why only finished memory is reused, and the
 * site's file. */
int ca_emit_stats_table(const struct ca_emit_process *process, const struct ca_emit_device *devices,
			unsigned count, ca_emit_write_fn *write, void *arg);

/* A write function over a buffer: cut at its end and always terminated. */
struct ca_emit_buffer {
	char *text; /* `size` bytes */
	size_t size;
	size_t length; /* of the whole text, also of what did not fit */
};
ca_emit_write_fn ca_emit_to_buffer;
