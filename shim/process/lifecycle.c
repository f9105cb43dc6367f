/* SPDX-License-Identifier: MIT */
/*
 * One word tells the state: not begun, being made (then it is the maker's pid, so that a child
 * forked in that moment does not wait for a thread it does not have), or made. The maker reads the
 * settings twice: once to learn where log lines go, once to report.
 */
#include "shim/process/lifecycle.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "allocator/core/counts_file.h"
#include "allocator/util/yield.h"
#include "config/log.h"
#include "shim/bind/libcuda.h"
#include "shim/bind/object.h"
#include "shim/bind/scope.h"
#include "shim/driver/driver_table.h"
#include "shim/driver/pools.h"
#include "shim/driver/told_pools.h"
#include "shim/framework/framework.h"
#include "shim/framework/take_over.h"
#include "shim/pinned/pinned.h"
#include "shim/process/identity.h"
#include "shim/process/introduce.h"
#include "shim/process/oom_message.h"
#include "shim/process/registration_listener.h"
#include "shim/process/site_conf.h"
#include "shim/process/snapshots.h"
#include "shim/process/stats_file.h"
#include "shim/process/tracing.h"
#include "shim/process/watch.h"
#include "shim/track/assumptions.h"
#include "shim/track/captures.h"
#include "shim/track/contexts.h"
#include "shim/track/events.h"
#include "shim/track/graphs.h"
#include "shim/track/stream_cache.h"
#include "shim/track/streams.h"

enum { UNMADE = 0, MADE = -1, EXIT_BAD_CONFIGURATION = 125 };

static _Atomic int state; /* UNMADE, MADE, or the maker's pid */
static struct ca_process process;
static bool fork_handler_set; /* only the maker writes */
/* In the child of a process that has used the driver, which refuses every call there: nobody looks
 * at what is loaded. Another thread of the parent's may have held the loader's lock for that, and
 * it would be waited for for ever. */
static bool is_driver_lost;

static void
after_fork_child(void)
{
	struct ca_process *parents = ca_process_made();

	ca_counts_file_after_fork_child(); /* before anything is counted */
	if (parents)
		ca_heap_after_fork_child(parents->heap); /* the next hooked call makes a new one */
	ca_tracing_after_fork_child();
	ca_log_after_fork_child();
	ca_capture_after_fork_child();
	is_driver_lost = ca_context_after_fork_child();
	ca_assumptions_after_fork_child();
	ca_marks_after_fork_child();
	ca_streams_after_fork_child();
	ca_submission_cache_after_fork_child();
	ca_dump_after_fork_child();
	ca_snapshots_after_fork_child();
	ca_events_after_fork_child();
	ca_graphs_after_fork_child();
	ca_pools_after_fork_child();
	ca_told_pools_after_fork_child();
	ca_pinned_after_fork_child();
	ca_hook_register_after_fork_child();
	ca_framework_after_fork_child();
	ca_report_after_fork_child();
	ca_identity_after_fork_child();
	ca_introduce_after_fork_child();
	ca_quick = (struct ca_quick){ .inside = ca_inside };
	atomic_store(&ca_process_record, NULL);
	atomic_store(&state, UNMADE);
}

static const char *
get_environment(void *arg, const char *name)
{
	return secure_getenv(name);
}

static void
report_setting(void *arg, const char *line)
{
	const bool *fatal = arg;

	ca_log(*fatal ? CA_LOG_ERROR : CA_LOG_WARN, "%s", line);
}

/* Never fatal: the program's user did nothing wrong. */
static void
report_site(void *arg, const char *line)
{
	ca_warn("%s", line);
}

static void
report_nothing(void *arg, const char *line)
{
}

static void
report_config(void *arg, const char *line)
{
	ca_info("%s", line);
}

static void
read_configuration(struct ca_config *config)
{
	const struct ca_site *site;
	enum ca_log_level level;
	bool bad, fatal;

	ca_site_conf_read();
	site = ca_site_conf();
	bad = ca_config_load_over(site, config, get_environment, NULL, environ, report_nothing,
				  NULL);
	fatal = bad && config->strict;
	level = config->log_level;
	if (fatal && level < CA_LOG_ERROR)
		level = CA_LOG_ERROR;
	ca_log_configure(level, config->log_file);
	ca_site_conf_report(report_site, NULL);
	if (bad || site)
		ca_config_load_over(site, config, get_environment, NULL, environ, report_setting,
				    &fatal);
	if (fatal)
		_exit(EXIT_BAD_CONFIGURATION);
	if (ca_log_enabled(CA_LOG_INFO)) {
		ca_introduce_library();
		if (site)
			ca_info("settings of the site: %s", ca_site_conf_path());
		ca_config_confirm(config, report_config, NULL);
	}
	ca_take_over_report();
}

static void
note_device(CUdevice device)
{
	ca_dump_note_device(device);
	if (process.caches && (process.config.async == CA_ASYNC_KEEP ||
			       (process.config.async == CA_ASYNC_POOL && process.fills)))
		ca_pools_keep(device);
	ca_told_pools_note_device(device);
}

static void
make(void)
{
	struct ca_driver driver = *ca_driver_table();
	int rc;

	driver.pools_trim = ca_pinned_trim;
	read_configuration(&process.config);
	if (process.config.disable == CA_DISABLE_ALL)
		return;
	if (!fork_handler_set &&
	    pthread_atfork(NULL, ca_tracing_after_fork_parent, after_fork_child)) {
		ca_warn("no memory for a fork handler: this process is served by the driver alone");
		return;
	}
	fork_handler_set = true;
	rc = ca_heap_create(&process.config, &driver, &process.heap);
	if (rc) {
		ca_warn("no memory for the first records: this process is served by the driver "
			"alone");
		return;
	}
	process.caches = process.config.disable == CA_DISABLE_OFF;
	process.fills = process.caches && (process.config.zero || process.config.poison);
	process.has_extras =
		process.caches && (process.config.free_sync_host || process.config.poison ||
				   ca_auto_trim_is_wanted(&process.config));
	process.limited = process.caches && ca_config_is_limited(&process.config);
	ca_tracing_start(&process.config, process.heap);
	process.ticks = process.fills || process.config.stats_interval_ns || ca_tracing_tracer ||
			ca_snapshots_tick_wanted(&process.config) ||
			ca_auto_trim_is_wanted(&process.config);
	process.is_plain = process.caches && !process.has_extras && !process.ticks;
	process.note_device = note_device;
	ca_dump_start(&process.config);
	ca_snapshots_start(&process.config);
	if (!is_driver_lost) /* else there is nothing to serve, and its looks might wait for ever */
		ca_fallback_start(&process);
	ca_pinned_start(&process.config);
	if (process.caches && process.config.async == CA_ASYNC_POOL && !process.fills)
		ca_told_pools_start(process.heap);
	atomic_store_explicit(&ca_process_record, &process, memory_order_release);
}

static __attribute__((noinline, cold)) struct ca_process *
make_once(void)
{
	CA_KEEP_ERRNO;
	int self = (int)getpid();
	int seen = UNMADE;

	while (!atomic_compare_exchange_strong(&state, &seen, self)) {
		if (seen == MADE)
			return ca_process_made();
		if (seen == self)
			ca_yield(); /* another thread makes it */
		else if (atomic_compare_exchange_strong(&state, &seen, UNMADE))
			seen = UNMADE; /* the maker stayed in the parent */
		else
			continue;
		seen = UNMADE;
	}
	make();
	atomic_store(&state, MADE);
	/* now that nobody waits for us: this may wait for a dlopen that makes hooked calls */
	if (!is_driver_lost)
		ca_hook_register_look(ca_process_made(), ca_object_generation());
	return ca_process_made();
}

struct ca_process *
ca_process(void)
{
	if (__builtin_expect(atomic_load_explicit(&state, memory_order_acquire) == MADE, 1))
		return ca_process_made();
	return make_once();
}

__attribute__((cold)) void
ca_process_tend(struct ca_process *one)
{
	const struct ca_real *real = ca_real();
	struct ca_space *space;
	CA_KEEP_ERRNO;

	if (one->config.stats_interval_ns)
		ca_dump_if_due(one->heap);
	ca_snapshots_tick(one->heap);
	ca_tracing_tick();
	if (real && !ca_inside && ca_auto_trim_is_wanted(&one->config) &&
	    (space = ca_context_space(real)))
		ca_auto_trim(space, false);
}

void
ca_process_note_allocation(const struct ca_process *one, size_t bytes, bool cached)
{
	ca_introduce_allocation(bytes, one->caches && cached);
}

/* Looks, but does not make: a process without hooked calls has nothing to write. */
static struct ca_process *
process_if_made(void)
{
	return atomic_load(&state) == MADE ? ca_process_made() : NULL;
}

__attribute__((destructor)) static void
at_exit(void)
{
	struct ca_process *one = process_if_made();

	if (one && !ca_heap_locked_here() && !ca_pinned_locked_here()) {
		ca_dump_final(one->heap);
		ca_snapshots_final(one->heap);
	}
	if (one)
		ca_tracing_end();
}
