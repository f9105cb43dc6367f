/* SPDX-License-Identifier: MIT */
/*
 * The environment, read once, as one validated struct.
 *
 * Every setting is described once, in config/options.def; parsing, defaults, ranges, the keys in
 * `--help`, the man page and docs/settings.md derive from it (CONTRIBUTING.md tells what does
 * not). A bad setting is reported through `report` with one line naming variable, key, value and
 * the accepted form, and is then ignored (it keeps its default). Nothing here allocates, prints,
 * exits or changes errno.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "config/log.h"
#include "config/path.h"

enum ca_disable {
	CA_DISABLE_OFF,   /* the allocator serves */
	CA_DISABLE_ALL,   /* pure pass-through, nothing counted */
	CA_DISABLE_COUNT, /* pass-through that counts and times the native calls */
};

/* In the order of options.def. */
enum ca_expandable {
	CA_EXPANDABLE_OFF,
	CA_EXPANDABLE_ON,
	CA_EXPANDABLE_AUTO,
};

enum ca_under_framework {
	CA_UNDER_AUTO,  /* under a framework that caches by itself requests go to the driver */
	CA_UNDER_PASS,  /* the same, whether its cache is on or not */
	CA_UNDER_CACHE, /* cached like any other request */
};

/* In the order of options.def. */
enum ca_async {
	CA_ASYNC_DRIVER, /* stream-ordered memory as natively */
	CA_ASYNC_KEEP,   /* the devices' default pools keep what is freed */
	CA_ASYNC_POOL,   /* it is served by a heap of ours */
};

/* In the order of options.def. */
enum ca_pinned {
	CA_PINNED_DRIVER, /* page-locked host memory as natively */
	CA_PINNED_CACHE,  /* what is freed is kept */
};

/* Bits, in the order of options.def. */
enum ca_take_over {
	CA_TAKE_TORCH = 1,
	CA_TAKE_JAX = 2,
	CA_TAKE_TENSORFLOW = 4,
	CA_TAKE_CUDF = 8,
};

/* Bits, in the order of options.def. */
enum ca_snapshot_on {
	CA_SNAPSHOT_ON_EXIT = 1,
	CA_SNAPSHOT_ON_OOM = 2,
	CA_SNAPSHOT_ON_PEAK = 4,
	CA_SNAPSHOT_ON_USR1 = 8, /* the signal */
	CA_SNAPSHOT_ON_USR2 = 16,
};

/* PyTorch's variables: where both are set, even to nothing, it reads the first. */
#define CA_TORCH_CONF "PYTORCH_CUDA_ALLOC_CONF"
#define CA_TORCH_CONF_NEW "PYTORCH_ALLOC_CONF"

/* Shares are numbers of billionths. */
#define CA_WHOLE ((uint64_t)1000000000)

/* Rounding of sizes below `below` bytes (and not of a smaller interval): to the next of `divisions`
 * equal steps between two powers of two; 0 or 1: to the grain only. */
struct ca_interval {
	uint64_t below; /* UINT64_MAX: all that are left */
	uint64_t divisions;
};
enum { CA_INTERVALS_MAX = 20 };
struct ca_roundup {
	uint64_t count; /* 0: off */
	struct ca_interval interval[CA_INTERVALS_MAX];
};

/* At most one of the two is set. */
struct ca_limit {
	uint64_t bytes; /* 0: none */
	uint64_t share; /* of the device, in billionths; 0: none */
};

struct ca_config {
	/* CACHEALLOC_CONF: tuning keys */
	uint64_t max_split_size_bytes; /* such blocks are never split; UINT64_MAX: none */
	uint64_t
		max_non_split_rounding_bytes; /* slack when such a block serves a smaller request */
	uint64_t large_segment_size_bytes;    /* segment for requests of 1 to 10 MiB; > 10 MiB */
	uint64_t reuse_slack_bytes;   /* cached memory tolerated before waiting; UINT64_MAX: any */
	unsigned expandable_segments; /* enum ca_expandable: they grow and shrink by mapping */
	uint64_t expandable_slack_percent; /* of the peak in use, before what is free moves */
	bool give_back_oom;        /* segments go back only when the driver has no memory left */
	bool reuse_finished;       /* never hand out memory that the device has not finished with */
	bool free_sync_host;       /* a free waits for the device, as the driver's own does */
	bool zero;                 /* memory is cleared before it is handed out */
	bool poison;               /* memory is filled when it is handed out and when it is freed */
	bool oom_managed;          /* managed memory where there is no other */
	unsigned under_framework;  /* enum ca_under_framework */
	unsigned async;            /* enum ca_async */
	unsigned pinned;           /* enum ca_pinned */
	uint64_t pinned_max_bytes; /* freed page-locked memory that is kept; 0: by the machine */
	uint64_t min_size_bytes;   /* smaller requests go straight to the driver */
	uint64_t max_size_bytes;   /* larger ones too; UINT64_MAX: none */
	struct ca_roundup roundup;
	uint64_t gc_threshold;      /* share of the cap or the device; 0: off */
	uint64_t memory_fraction;   /* share of the device for segments; 0, CA_WHOLE: all */
	uint64_t max_cached_bytes;  /* free memory that is kept; UINT64_MAX: any */
	uint64_t min_reserve_bytes; /* that automatic trims leave reserved */
	uint64_t trim_idle_ms;      /* segments unused for so long go back; 0: off */
	uint64_t trim_every;        /* allocations between two trims; 0: off */
	uint64_t oom_retry_ms;      /* how long to ask the driver again; 0: not at all */

	/* variables with one purpose each */
	struct ca_limit limit;        /* of all device memory of the process, per device */
	struct ca_limit forced_limit; /* the same, of a site's file; the smaller one holds */
	unsigned take_over;           /* enum ca_take_over, or-ed */
	enum ca_disable disable;
	bool strict;
	enum ca_log_level log_level;
	bool stats_stderr;               /* table on stderr at exit */
	uint64_t stats_interval_ns;      /* 0: only at exit */
	char log_file[CA_PATH_MAX];      /* pattern; empty: stderr */
	char stats_file[CA_PATH_MAX];    /* pattern; empty: none; suffix .json selects JSON */
	char trace_file[CA_PATH_MAX];    /* pattern; empty: none */
	char snapshot_file[CA_PATH_MAX]; /* pattern; empty: none */
	unsigned snapshot_on;            /* enum ca_snapshot_on, or-ed */
};

static inline bool
ca_config_is_limited(const struct ca_config *config)
{
	return config->limit.bytes || config->limit.share || config->forced_limit.bytes ||
	       config->forced_limit.share;
}

/* Returns the value of an environment variable or NULL;
 * secure_getenv in the library, a table in tests. */
typedef const char *ca_getenv_fn(void *arg, const char *name);
/* Called once per bad setting with a complete line,
 * without newline and without the "cachealloc: " prefix. */
typedef void ca_report_fn(void *arg, const char *line);

enum { CA_CONFIG_REPORT_MAX = 64 };

/* Every field at its default. */
void ca_config_default(struct ca_config *ret_config);

/*
 * Fills *ret_config from the environment: defaults first, then every accepted setting.
 * `environ_names`, a NULL-terminated list of NAME=value strings (or NULL), is searched for misspelt
 * CACHEALLOC_ variables; pass NULL where `env` hides the environment (secure execution). `report`
 * may be NULL.
 *
 * A variable that is set to nothing counts as unset. Bad are also: a setting that is known but not
 * in this version, a PyTorch key without meaning here, and a key given twice (the last accepted
 * value wins). Under CACHEALLOC_TAKEOVER=torch keys that CACHEALLOC_CONF lacks are read from
 * PyTorch's variable. Each bad setting is one line; after CA_CONFIG_REPORT_MAX of them one more
 * line says how many were not shown.
 *
 * Returns the number of bad settings; 0 when all is well. *ret_config is valid in either case.
 * Whether any of it is fatal (ret_config->strict) is the caller's business. CACHEALLOC_STRICT is
 * read first: ret_config->strict is right already when `report` is called, which happens on this
 * thread.
 */
int ca_config_load(struct ca_config *ret_config, ca_getenv_fn *env, void *env_arg,
		   char *const *environ_names, ca_report_fn *report, void *report_arg);

/*
 * One line per setting that differs from its default, through report, in the form in which a user
 * would set it: CACHEALLOC_LOG=info confirms these.
 */
void ca_config_confirm(const struct ca_config *config, ca_report_fn *report, void *report_arg);
