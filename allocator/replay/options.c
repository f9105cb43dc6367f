/* SPDX-License-Identifier: MIT */
#include "allocator/replay/options.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/replay/line.h"
#include "allocator/replay/play.h"

enum { RUNS_DEFAULT = 5, RUNS_MAX = 1000, LAG_MAX_US = 1000 * 1000 };

const char ca_replay_help[] =
	"usage: cachealloc-replay FILE [OPTIONS]\n"
	"\n"
	"Plays the allocations of a recorded trace on the allocator, over pretend memory, and\n"
	"tells what would have been reserved, asked of the driver and wasted. No GPU is\n"
	"needed, and the same trace and settings always give the same figures.\n"
	"\n"
	"FILE is a trace of CACHEALLOC_TRACE, a PyTorch memory snapshot (pickle or JSON), an\n"
	"RMM log, a table of id,lower,upper,size, or .trc text. `-` is standard input, so that\n"
	"compressed files need no copy: xz -dc FILE.xz | cachealloc-replay -\n"
	"\n"
	"  --conf K:V,...       tuning keys, as in CACHEALLOC_CONF (the variable itself is\n"
	"                       not read); may be repeated\n"
	"  --memory N           memory of each device, for example 80G; default: no limit\n"
	"  --lag N[us]          the device is busy: each allocation is followed by N microseconds\n"
	"                       of work on its stream, and the host runs ahead of it; 0: work\n"
	"                       ends within a millisecond; default: as a trace of\n"
	"                       CACHEALLOC_TRACE tells, else 0\n"
	"  --find-min-capacity  search the smallest memory that is enough, to 2 MiB\n"
	"  --to-refusal         end with the last request that the recorded program was refused,\n"
	"                       played as an allocation; default: refused requests are not played\n"
	"  --time[=RUNS]        measure the time of operations, too: the quietest of RUNS\n"
	"                       replays (5)\n"
	"  --json               the result as JSON\n"
	"  --timeline FILE      write what there was between the events into FILE, a new one,\n"
	"                       for drawing: as recorded, or as replayed where the recording\n"
	"                       does not tell its segments\n"
	"  --replayed           in any case as replayed\n"
	"  -h, --help           this text\n"
	"  -V, --version        the version\n"
	"\n"
	"Exit status: 0 done; 1 the file cannot be read or is broken; 2 wrong usage or\n"
	"setting; 3 the memory was not enough.\n";

void
ca_replay_print_error(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fprintf(stderr, "cachealloc-replay: error: ");
	vfprintf(stderr, format, args);
	fprintf(stderr, "\n");
	va_end(args);
}

bool
ca_replay_parse_size(const char *text, uint64_t *ret_bytes)
{
	static const char units[] = "KMGT";
	size_t digits = strspn(text, "0123456789");
	const char *rest = text + digits, *unit = *rest ? strchr(units, *rest) : NULL;
	unsigned shift = unit ? 10 * (unsigned)(unit - units + 1) : 0;
	uint64_t value;

	if (unit)
		rest++;
	if (unit && !strcmp(rest, "iB"))
		rest += 2;
	else if (!strcmp(rest, "B"))
		rest++;
	if (*rest || !ca_replay_decimal((struct ca_replay_text){ text, digits }, &value) ||
	    !value || value > CA_REPLAY_UNLIMITED >> shift)
		return false;
	*ret_bytes = value << shift;
	return true;
}

static bool
add_conf(struct ca_replay_options *options, const char *text)
{
	size_t length = strlen(options->conf), more = strlen(text);

	if (length + more + 2 > sizeof(options->conf)) {
		ca_replay_print_error("--conf is longer than %d bytes", CA_CONF_TEXT_MAX);
		return false;
	}
	snprintf(options->conf + length, sizeof(options->conf) - length, "%s%s", length ? "," : "",
		 text);
	return true;
}

static bool
set_runs(struct ca_replay_options *options, const char *text)
{
	uint64_t runs = RUNS_DEFAULT;

	if (text && (!ca_parse_number(text, 1, RUNS_MAX, &runs))) {
		ca_replay_print_error("--time '%s': expected a number of replays from 1 to %d",
				      text, RUNS_MAX);
		return false;
	}
	options->time_runs = (unsigned)runs;
	return true;
}

static bool
set_memory(struct ca_replay_options *options, const char *text)
{
	if (ca_replay_parse_size(text, &options->memory_bytes))
		return true;
	ca_replay_print_error("--memory '%s': expected a size such as 80G, 512M or 1073741824",
			      text);
	return false;
}

static bool
set_lag(struct ca_replay_options *options, const char *text)
{
	size_t digits = strspn(text, "0123456789");
	uint64_t us;

	if ((text[digits] && strcmp(text + digits, "us")) ||
	    !ca_replay_decimal((struct ca_replay_text){ text, digits }, &us) || us > LAG_MAX_US) {
		ca_replay_print_error(
			"--lag '%s': expected microseconds from 0 to %d, such as 20us", text,
			LAG_MAX_US);
		return false;
	}
	options->lag_ns = us * 1000;
	return true;
}

static enum ca_replay_query
wrong(void)
{
	fprintf(stderr, "Try 'cachealloc-replay --help'.\n");
	return CA_REPLAY_ASKED_WRONG;
}

/* The words that are no options: one file. */
static enum ca_replay_query
take_file(int argc, char **argv, struct ca_replay_options *options)
{
	if (optind + 1 != argc) {
		ca_replay_print_error(optind < argc ? "more than one file" : "no file");
		return wrong();
	}
	if (options->timeline && options->time_runs) {
		ca_replay_print_error("--timeline: a replay that is watched cannot be timed");
		return wrong();
	}
	if (options->timeline && options->to_rejected) {
		ca_replay_print_error("--to-refusal: of no use with --timeline");
		return wrong();
	}
	if (options->replayed && !options->timeline) {
		ca_replay_print_error("--replayed: of use with --timeline only");
		return wrong();
	}
	options->file = argv[optind];
	return CA_REPLAY_ASKED_REPLAY;
}

enum ca_replay_query
ca_replay_options_parse(int argc, char **argv, struct ca_replay_options *ret_options)
{
	static const struct option known[] = {
		{ "conf", required_argument, NULL, 'c' },
		{ "memory", required_argument, NULL, 'm' },
		{ "lag", required_argument, NULL, 'l' },
		{ "find-min-capacity", no_argument, NULL, 'f' },
		{ "to-refusal", no_argument, NULL, 'r' },
		{ "time", optional_argument, NULL, 't' },
		{ "json", no_argument, NULL, 'j' },
		{ "timeline", required_argument, NULL, 'T' },
		{ "replayed", no_argument, NULL, 'R' },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ 0 },
	};
	int c;

	*ret_options = (struct ca_replay_options){ .memory_bytes = CA_REPLAY_UNLIMITED,
						   .lag_ns = CA_REPLAY_AS_TOLD };
	while ((c = getopt_long(argc, argv, "hV", known, NULL)) != -1) {
		bool good = true;

		if (c == 'h')
			return CA_REPLAY_ASKED_HELP;
		if (c == 'V')
			return CA_REPLAY_ASKED_VERSION;
		if (c == 'c')
			good = add_conf(ret_options, optarg);
		else if (c == 'm')
			good = set_memory(ret_options, optarg);
		else if (c == 'l')
			good = set_lag(ret_options, optarg);
		else if (c == 't')
			good = set_runs(ret_options, optarg);
		else if (c == 'f')
			ret_options->find_capacity = true;
		else if (c == 'r')
			ret_options->to_rejected = true;
		else if (c == 'j')
			ret_options->json = true;
		else if (c == 'T')
			ret_options->timeline = optarg;
		else if (c == 'R')
			ret_options->replayed = true;
		else
			good = false;
		if (!good)
			return wrong();
	}
	return take_file(argc, argv, ret_options);
}
