/* SPDX-License-Identifier: MIT */
/*
 * The SIMCUDA_* environment, parsed strictly: this is a test tool, and a test that believes in a
 * knob which was not understood is worse than none.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/sim/engine.h"
#include "tests/sim/names.h"

enum {
	SIMB_FAILS_MAX = 64,
	SIMB_PATH_MAX = 4096,
};

/* One rule of SIMCUDA_FAIL: the nth call (from 1) of a name answers `code`. */
struct simb_fail {
	int name;     /* index into simb_names; -1: calls of any name, counted together */
	uint64_t nth; /* from 1 */
	bool onwards; /* and all later ones */
	int code;     /* CUresult, > 0 */
};

struct simb_latency {
	uint64_t fixed_ns;   /* each call */
	uint64_t ns_per_mib; /* and for each MiB that it allocates */
};

struct simb_knobs {
	int n_devices;      /* 0..SIM_DEVICES_MAX; 0: cuInit answers NO_DEVICE */
	uint64_t mem_bytes; /* capacity of each device */
	int driver_version; /* 1000 * major + 10 * minor */
	enum sim_clock clock;
	unsigned asked_max; /* sim_config.asked_max */
	enum sim_races races;
	bool strict;        /* abort at a misuse */
	bool private_table; /* cuGetExportTable knows ours */
	bool every_table;   /* and gives an empty one for any other id */
	bool future;        /* cuGetProcAddress knows a name that no cuda.h has */
	bool no_vmm;        /* no device has virtual memory management */
	bool rdma;          /* mapped memory can be for other cards (GPUDirect RDMA) */
	bool free_at_once;  /* cuMemFree waits for nothing */
	bool ends_tell;     /* a context's end answers the error of its work */
	unsigned breaks;    /* enum sim_breaks */
	bool one_queue;     /* each device has one queue in hardware */
	unsigned jitter_us; /* longest random delay of a submission; 0: none */
	bool jitter_seeded; /* the seed was given */
	uint64_t jitter_seed;
	unsigned deadlock_ms;           /* limit of a wait without progress; 0: none */
	char ipc[SIMB_PATH_MAX];        /* empty: none; a folder, or self */
	int log_fd;                     /* -1: no log */
	char stats_path[SIMB_PATH_MAX]; /* empty: none; %p not yet expanded */
	bool latency_whole;             /* latencies are those of whole calls, not added to ours */
	const char *latency_source;     /* "none", "published" or "custom" */
	struct simb_latency latency[SIMB_NAMES];
	int n_fails;
	struct simb_fail fails[SIMB_FAILS_MAX];
};

/*
 * Reads the environment through `get` (getenv's contract) into *knobs. 0, or -EINVAL with one line
 * in `error` naming variable, value and what is accepted. SIMCUDA_* variables that do not exist are
 * not looked for here (simb_knobs_unknown does). Opens the log file.
 */
int simb_knobs_parse(struct simb_knobs *knobs, char *(*get)(const char *name), char *error,
		     size_t n_error);

/* The first SIMCUDA_* variable in `environment` that is no knob, or NULL. */
const char *simb_knobs_unknown(char *const *environment);

/* "7", "16G", "512M", "64K" -> bytes; false if it is anything else. */
bool simb_bytes_parse(const char *text, uint64_t *ret_bytes);
/* "100us", "3ms", "250ns", "1s" -> nanoseconds; false if it is anything else. */
bool simb_time_parse(const char *text, uint64_t *ret_ns);

/* Copies pattern to out with %p replaced by pid and %% by %;
 * -ENAMETOOLONG, or -EINVAL for another % sequence. */
int simb_path_expand(const char *pattern, int pid, char *out, size_t n_out);
