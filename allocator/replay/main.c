/* SPDX-License-Identifier: MIT */
/* cachealloc-replay: from the command line to the report. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "allocator/replay/emit.h"
#include "allocator/replay/file.h"
#include "allocator/replay/options.h"
#include "allocator/replay/timeline.h"
#include "config/text.h"

enum {
	STATUS_DONE = 0,
	STATUS_FAILED = 1,
	STATUS_USAGE = 2,
	STATUS_OUT_OF_MEMORY = 3,
};

struct run {
	struct ca_replay_options options;
	struct ca_config config;
	struct ca_replay_input input;
	struct ca_replay_setting setting;
	struct ca_replay_result results[CA_REPLAY_DEVICES];
	uint64_t capacity[CA_REPLAY_DEVICES];
	unsigned n_results;
	FILE *timeline; /* NULL: not asked for */
};

/* ---- settings: as the library reads its own, and any bad one is fatal */

static const char *
setting(void *arg, const char *name)
{
	const struct ca_replay_options *options = arg;

	if (!strcmp(name, "CACHEALLOC_CONF"))
		return options->conf;
	return strcmp(name, "CACHEALLOC_STRICT") ? NULL : "1";
}

static void
bad_setting(void *arg, const char *line)
{
	ca_replay_print_error("%s", line);
}

/* ---- the file */

static void
print_file_error(const char *file, const struct ca_replay_error *error)
{
	if (error->where == UINT64_MAX)
		ca_replay_print_error("%s: %s", file, error->text);
	else if (error->line)
		ca_replay_print_error("%s:%" PRIu64 ": %s", file, error->where, error->text);
	else
		ca_replay_print_error("%s: byte %" PRIu64 ": %s", file, error->where, error->text);
}

static int
read_input(struct run *run)
{
	const char *name = run->options.file;
	struct ca_replay_file file = { 0 };
	struct ca_replay_error error = { .where = UINT64_MAX };
	int r = ca_replay_file_read(name, &file);

	if (r) {
		ca_replay_print_error("%s: %s", name, strerror(-r));
		return STATUS_FAILED;
	}
	r = ca_replay_input_read(file.data, file.size, &run->input, &error);
	if (r)
		print_file_error(name, &error);
	else if (run->input.truncated)
		fprintf(stderr,
			"cachealloc-replay: warning: %s is cut off: what is there is played\n",
			name);
	ca_replay_file_clear(&file);
	return r ? STATUS_FAILED : STATUS_DONE;
}

/* ---- replaying */

/* The run that was interrupted least has the smallest tail. */
static bool
is_quieter(const struct ca_replay_times *a, const struct ca_replay_times *b)
{
	return a->op.p999 < b->op.p999 || (a->op.p999 == b->op.p999 && a->op.mean < b->op.mean);
}

/* Replays again and keeps the quietest. */
static int
run_timed(struct run *run, struct ca_replay_result *result, struct ca_replay_error *error)
{
	struct ca_replay_result again;
	unsigned i;
	int r = 0;

	for (i = 1; i < run->options.time_runs && !r; i++) {
		r = ca_replay_run(&run->input, result->device, &run->setting, &again, error);
		if (!r && is_quieter(&again.times, &result->times))
			*result = again;
	}
	return r;
}

/* The replay, and the timeline of the device. */
static int
run_timeline(struct run *run, unsigned device, struct ca_replay_result *result,
	     struct ca_replay_error *error)
{
	bool recorded = !run->options.replayed && ca_timeline_is_recorded(&run->input, device);
	struct ca_replay_setting setting = run->setting;
	struct ca_timeline *timeline = NULL;
	struct ca_timeline_replay replay;
	int r = ca_timeline_replay_begin(&replay, &run->input);

	if (r)
		return ca_replay_fail(error, "out of host memory");
	setting.observer = &replay.observer;
	r = ca_replay_run(&run->input, device, &setting, result, error);
	if (!r && recorded) {
		bool own = run->input.told;

		r = ca_timeline_from_input(&run->input, device, own ? replay.timeline : NULL,
					   own ? replay.waiting : NULL, &timeline);
	}
	if (!r)
		r = ca_timeline_write(recorded ? timeline : replay.timeline, &run->input, device,
				      recorded ? "recorded" : "replayed", run->timeline);
	if (r == -ENOMEM)
		ca_replay_fail(error, "out of host memory");
	if (r == -EIO)
		ca_replay_fail(error, "the timeline cannot be written");
	ca_timeline_destroy(timeline);
	ca_timeline_replay_clear(&replay);
	return r;
}

static int
run_device(struct run *run, unsigned device, struct ca_replay_error *error)
{
	struct ca_replay_result *result = &run->results[run->n_results];
	int r = run->timeline ? run_timeline(run, device, result, error)
			      : ca_replay_run(&run->input, device, &run->setting, result, error);

	if (!r)
		r = run_timed(run, result, error);
	if (!r && run->options.find_capacity && !result->out_of_memory)
		r = ca_replay_find_capacity(&run->input, &run->setting, result,
					    &run->capacity[run->n_results], error);
	run->n_results++;
	return r;
}

/* Every device that has an event; device 0 if there is none at all. */
static int
run_all(struct run *run)
{
	struct ca_replay_error error = { .where = UINT64_MAX };
	uint64_t devices = 0;
	unsigned device;
	size_t i;
	int r = 0;

	for (i = 0; i < run->input.count; i++)
		devices |= UINT64_C(1) << run->input.events[i].device;
	if (!devices)
		devices = 1;
	for (device = 0; device < CA_REPLAY_DEVICES && !r; device++)
		if (devices >> device & 1)
			r = run_device(run, device, &error);
	if (r)
		print_file_error(run->options.file, &error);
	return r ? STATUS_FAILED : STATUS_DONE;
}

static int
print_memory_error(const struct run *run)
{
	char request[CA_TEXT_SIZE_MAX], live[CA_TEXT_SIZE_MAX], held[CA_TEXT_SIZE_MAX];
	int status = STATUS_DONE;
	unsigned i;

	for (i = 0; i < run->n_results; i++) {
		const struct ca_replay_oom *oom = &run->results[i].oom;

		if (!run->results[i].out_of_memory)
			continue;
		status = STATUS_OUT_OF_MEMORY;
		ca_replay_print_error("%s: device %u is out of memory at event %" PRIu64
				      " (%s %" PRIu64
				      "): %s were asked for, %s are live, %s are reserved",
				      run->options.file, run->results[i].device, oom->event,
				      run->input.lines ? "line" : "byte", oom->where,
				      ca_text_bytes(request, oom->request_bytes),
				      ca_text_bytes(live, oom->live_bytes),
				      ca_text_bytes(held, oom->reserved_bytes));
	}
	return status;
}

static void
report(const struct run *run)
{
	struct ca_replay_report report = { .file = run->options.file,
					   .conf = run->options.conf,
					   .lag_ns = run->options.lag_ns,
					   .memory_bytes = run->options.memory_bytes,
					   .to_rejected = run->options.to_rejected,
					   .input = &run->input,
					   .results = run->results,
					   .n_results = run->n_results };

	if (run->options.find_capacity)
		report.min_capacity_bytes = run->capacity;
	if (run->options.json)
		ca_replay_emit_json(&report, stdout);
	else
		ca_replay_emit_text(&report, stdout);
}

static int
print_timeline_error(const struct run *run)
{
	ca_replay_print_error("%s: %s", run->options.timeline, strerror(errno));
	return STATUS_FAILED;
}

/* An existing file is kept; a device or a pipe is written to. */
static int
open_timeline(struct run *run)
{
	const char *name = run->options.timeline;
	struct stat info;

	if (!name)
		return STATUS_DONE;
	if (!stat(name, &info) && !S_ISREG(info.st_mode)) {
		run->timeline = fopen(name, "wb");
	} else {
		run->timeline = fopen(name, "wbx");
		if (!run->timeline && errno == EEXIST) {
			ca_replay_print_error("%s exists, and is not overwritten", name);
			return STATUS_USAGE;
		}
	}
	return run->timeline ? STATUS_DONE : print_timeline_error(run);
}

/* A file that is not whole is removed; what is none, such as /dev/full, stays. */
static int
close_timeline(struct run *run, int status)
{
	struct stat info = { 0 };
	bool is_file;

	if (!run->timeline)
		return status;
	is_file = !fstat(fileno(run->timeline), &info) && S_ISREG(info.st_mode);
	if (fclose(run->timeline) && !status)
		status = print_timeline_error(run);
	if (status && is_file)
		remove(run->options.timeline);
	return status;
}

static int
replay(struct run *run)
{
	int status;

	if (ca_config_load(&run->config, setting, &run->options, NULL, bad_setting, NULL))
		return STATUS_USAGE;
	run->setting.config = &run->config;
	run->setting.memory_bytes = run->options.memory_bytes;
	run->setting.lag_ns = run->options.lag_ns;
	run->setting.time = run->options.time_runs;
	run->setting.to_rejected = run->options.to_rejected;
	status = read_input(run);
	if (!status)
		status = open_timeline(run);
	if (!status)
		status = run_all(run);
	status = close_timeline(run, status);
	if (!status) {
		report(run);
		status = print_memory_error(run);
	}
	ca_replay_input_clear(&run->input);
	return status;
}

/* The exit status, after the output has been written, too. */
static int
written(int status)
{
	if (fflush(stdout) || ferror(stdout)) {
		ca_replay_print_error("writing the result: %s", strerror(errno));
		return STATUS_FAILED;
	}
	return status;
}

int
main(int argc, char **argv)
{
	static struct run run;

	switch (ca_replay_options_parse(argc, argv, &run.options)) {
	case CA_REPLAY_ASKED_REPLAY:
		return written(replay(&run));
	case CA_REPLAY_ASKED_HELP:
		fputs(ca_replay_help, stdout);
		return written(STATUS_DONE);
	case CA_REPLAY_ASKED_VERSION:
		printf("cachealloc-replay %s\n", CA_VERSION);
		return written(STATUS_DONE);
	default:
		return STATUS_USAGE;
	}
}
