/* SPDX-License-Identifier: MIT */
/*
 * Deadlocks: a wait of the host that can never end, and who waits for whom then.
 *
 * Every wait of the host comes by here some 20 times a second. It is certain that nothing will ever
 * move when no operation runs, none can run, all that are not held up by others wait for a value
 * that is not there, and the process has no thread but the one that waits and the engine's own
 * (nobody is left to write a value or to submit something). A process with more threads is never
 * certain; for those, and for whatever else stands still, config.deadlock_ms is a limit on how long
 * the host may wait without any operation completing. A kernel with spin time counts as progress.
 */
#include "tests/sim/engine/internal.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
	CERTAIN_MS = 100, /* before the question is asked at all */
	LINES_MAX = 64,
};

static uint64_t
mono_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static unsigned
threads_of_process(void)
{
	DIR *dir = opendir("/proc/self/task");
	const struct dirent *entry;
	unsigned n = 0;

	while (dir && (entry = readdir(dir)))
		n += entry->d_name[0] != '.';
	if (dir)
		closedir(dir);
	return n;
}

static bool
stuck(const struct sim_op *op)
{
	return op->state == SIM_OP_WAITING &&
	       (op->n_waits || (sim_op_awaits(op) && !sim_await_met_locked(op)));
}

static bool
certain_locked(void)
{
	unsigned n_threads = 1 + sim_host_threads_locked();

	for (const struct sim_op *op = sim_g.first; op; op = op->next)
		if (!stuck(op))
			return false;
	for (int i = 0; i < SIM_DEVICES_MAX; i++)
		n_threads += sim_g.device[i].worker.started;
	return sim_g.first && threads_of_process() == n_threads;
}

static bool
spins_locked(void)
{
	for (const struct sim_op *op = sim_g.first; op; op = op->next)
		if (op->state == SIM_OP_RUNNING && op->work.spin_ns)
			return true;
	return false;
}

/* ---------------------------------------------------------------- report --- */
static void
print_op(const struct sim_op *op)
{
	fprintf(stderr, "%s #%llu (stream %llu, context %llu)", op->work.name,
		(unsigned long long)op->seq, (unsigned long long)op->stream_id,
		(unsigned long long)op->ctx_id);
}

static void
print_word(const struct sim_work *work)
{
	static const char *const words[] = { ">=", "==", "&", "nor", ">=" };
	const void *word = (const void *)(uintptr_t)work->a[0];
	uint64_t have = work->a[3] == 8 ? __atomic_load_n((const uint64_t *)word, __ATOMIC_RELAXED)
					: __atomic_load_n((const uint32_t *)word, __ATOMIC_RELAXED);

	fprintf(stderr, " the %u-bit word at 0x%llx %s 0x%llx; it holds 0x%llx",
		(unsigned)work->a[3] * 8, (unsigned long long)work->a[0], words[work->a[2]],
		(unsigned long long)work->a[1], (unsigned long long)have);
}

static void
print_line(const struct sim_op *op)
{
	const char *sep = " ";

	fprintf(stderr, "  ");
	print_op(op);
	if (op->state == SIM_OP_RUNNING) {
		fprintf(stderr, " is running");
	} else if (op->n_waits) {
		fprintf(stderr, " waits for");
		for (unsigned i = 0; i < op->n_deps; i++) {
			if (op->deps[i]->state == SIM_OP_DONE)
				continue;
			fprintf(stderr, "%s", sep);
			print_op(op->deps[i]);
			sep = ", ";
		}
	} else if (stuck(op)) {
		fprintf(stderr, " waits for");
		print_word(&op->work);
	} else {
		fprintf(stderr, " can run");
	}
	fprintf(stderr, "\n");
}

static void
report_locked(uint64_t ms, bool certain)
{
	unsigned n = 0;

	fprintf(stderr, "simcuda: deadlock: a call has waited %llu ms, no operation completed%s\n",
		(unsigned long long)ms,
		certain ? ", and nothing is left that could release one" : "");
	for (const struct sim_op *op = sim_g.first; op && n < LINES_MAX; op = op->next, n++)
		print_line(op);
	if (sim_g.n_pending > n)
		fprintf(stderr, "  and %llu more\n", (unsigned long long)sim_g.n_pending - n);
	if (sim_g.config.on_deadlock)
		sim_g.config.on_deadlock(sim_g.config.arg, certain);
	if (sim_g.config.deadlock_abort)
		abort();
}

void
sim_stall_look_locked(struct sim_stall *stall)
{
	uint64_t now = mono_ms(), ms;
	bool certain, late;

	if (stall->n_done != sim_g.n_done || !stall->since_ms || spins_locked()) {
		stall->n_done = sim_g.n_done;
		stall->since_ms = now;
		return;
	}
	ms = now - stall->since_ms;
	if (stall->told || ms < CERTAIN_MS)
		return;
	late = sim_g.config.deadlock_ms && ms >= sim_g.config.deadlock_ms;
	certain = certain_locked();
	if (!late && !certain)
		return;
	stall->told = true;
	report_locked(ms, certain);
}
