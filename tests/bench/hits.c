/* SPDX-License-Identifier: MIT */
/*
 * The price of an allocation that the cache serves, and of its free:
 *
 *   hits [--arm cuda|mimalloc|cub] [--cpu N] [--rounds N] [--pairs N] [--threads N] [--live N]
 *        [--holes N] [--trace FILE] SITUATION
 *
 *   pair      free follows allocation at once, all of one size, after a kernel on the one stream
 *   own       the same in --threads threads on processors of their own, each with its own stream
 *   handoff   one thread allocates 64 blocks and hands them over; another frees them
 *   live      --live blocks of mixed sizes are alive and --holes were freed between them; each
 *             pair frees one of them and allocates one, at random
 *   trace     the allocations and frees of a recorded trace, work on one stream after each; each
 *             call is timed alone, less what reading the clock costs
 *
 * `--arm mimalloc` does the same with mi_malloc and mi_free (libmimalloc.so.2), `--arm cub` with
 * CUB's CachingDeviceAllocator (cub.cpp; libbench_cub.so is looked for where the loader looks), for
 * comparison.
 *
 * Prints one JSON object: nanoseconds a pair (trace: a call) by rounds; handoff also the time that
 * its threads' processors spent on it ("cpu_ns"), less waiting for each other. The calls run inside
 * measured_*(), for callgrind's --toggle-collect; the first round is for warming up.
 */
#include "tests/bench/api.h"

#include <dlfcn.h>
#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCH = 64, THREADS_MAX = 16, BYTES = 64 << 10, GRAIN = 512, ID_MAX = 1 << 24 };

/* Another allocator: a library and its two functions. */
static const struct peer {
	const char *name, *library, *take, *give;
} peers[] = {
	{ "mimalloc", "libmimalloc.so.2", "mi_malloc", "mi_free" },
	{ "cub", "libbench_cub.so", "peer_take", "peer_give" }, /* cub.cpp */
	{ NULL, NULL, NULL, NULL },
};

static struct {
	const struct peer *peer; /* NULL: the driver's calls */
	int cpu;
	unsigned long rounds, pairs, threads, live, holes;
	const char *trace, *situation;
} options = { .cpu = -1, .rounds = 20, .pairs = 10000, .threads = 2, .live = 1000 };

static void *(*peer_take)(size_t bytes);
static void (*peer_give)(void *block);
static CUcontext context;
static void *fill;
static double *round_ns; /* sums over threads */

static void
take_library(void)
{
	void *library = dlopen(options.peer->library, RTLD_NOW);

	if (!library)
		api_fail("the peer's library cannot be loaded", 0);
	peer_take = (void *(*)(size_t))(uintptr_t)dlsym(library, options.peer->take);
	peer_give = (void (*)(void *))(uintptr_t)dlsym(library, options.peer->give);
	if (!peer_take || !peer_give)
		api_fail("the peer's functions", 0);
}

static inline uint64_t
take(size_t bytes)
{
	CUdeviceptr address;

	if (options.peer)
		return (uint64_t)(uintptr_t)peer_take(bytes);
	CALL(cuMemAlloc_v2, &address, bytes);
	return address;
}

static inline void
give(uint64_t address)
{
	if (options.peer)
		peer_give((void *)(uintptr_t)address);
	else
		CALL(cuMemFree_v2, address);
}

static void
launch(uint64_t target, CUstream stream)
{
	uint64_t words = 1, value = 1, spin_us = 0;
	void *arguments[] = { &target, &words, &value, &spin_us };

	if (!options.peer)
		CALL(cuLaunchKernel, fill, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
}

static CUstream
stream_new(void)
{
	CUstream stream = NULL;

	if (!options.peer)
		CALL(cuStreamCreate, &stream, 1);
	return stream;
}

static uint64_t
random_next(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

/* ---- pair, own */

void measured_pairs(unsigned long n);

__attribute__((noinline)) void
measured_pairs(unsigned long n)
{
	while (n--)
		give(take(BYTES));
}

static pthread_barrier_t barrier;

struct thread {
	pthread_t thread;
	int cpu;
	double ns;
};

static void *
own_thread(void *arg)
{
	struct thread *thread = arg;
	CUstream stream;
	uint64_t start, kept;

	pin_to(thread->cpu);
	if (!options.peer)
		CALL(cuCtxSetCurrent, context);
	stream = stream_new();
	kept = take(BYTES);
	for (unsigned long r = 0; r <= options.rounds; r++) {
		launch(kept, stream);
		pthread_barrier_wait(&barrier);
		start = now_ns();
		measured_pairs(options.pairs);
		thread->ns = (double)(now_ns() - start);
		pthread_barrier_wait(&barrier);
	}
	give(kept);
	return NULL;
}

/* The main thread reads the others' times between two barriers. */
static void
own(void)
{
	struct thread threads[THREADS_MAX] = { 0 };

	pthread_barrier_init(&barrier, NULL, (unsigned)options.threads + 1);
	for (unsigned long t = 0; t < options.threads; t++) {
		threads[t].cpu = options.cpu < 0 ? -1 : (int)t;
		if (pthread_create(&threads[t].thread, NULL, own_thread, &threads[t]))
			api_fail("pthread_create", errno);
	}
	for (unsigned long r = 0; r <= options.rounds; r++) {
		double slowest = 0;

		pthread_barrier_wait(&barrier);
		pthread_barrier_wait(&barrier);
		for (unsigned long t = 0; t < options.threads; t++)
			slowest = threads[t].ns > slowest ? threads[t].ns : slowest;
		if (r)
			round_ns[r - 1] = slowest / (double)options.pairs;
	}
	for (unsigned long t = 0; t < options.threads; t++)
		pthread_join(threads[t].thread, NULL);
}

static void
pair(void)
{
	CUstream stream = stream_new();
	uint64_t kept = take(BYTES), start;

	launch(kept, stream);
	measured_pairs(options.pairs);
	for (unsigned long r = 0; r < options.rounds; r++) {
		start = now_ns();
		measured_pairs(options.pairs);
		round_ns[r] = (double)(now_ns() - start) / (double)options.pairs;
	}
}

/* ---- handoff */

static uint64_t batches[2][BATCH];
static _Atomic unsigned long handed, taken;

/* Whoever waits for long gives way: the other may not be running. */
static void
wait_until(_Atomic unsigned long *word, unsigned long value)
{
	unsigned spins = 0;

	while (atomic_load_explicit(word, memory_order_acquire) < value)
		if (spins++ > 1000)
			sched_yield();
}

static double *cpu_ns; /* of both threads, by rounds, the first included */
static _Atomic uint64_t freeing_ns;

static uint64_t
cpu_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void *
handoff_thread(void *arg)
{
	unsigned long n = (options.rounds + 1) * (options.pairs / BATCH);
	uint64_t start;

	pin_to(options.cpu < 0 ? -1 : 1);
	if (!options.peer)
		CALL(cuCtxSetCurrent, context);
	for (unsigned long b = 0; b < n; b++) {
		wait_until(&handed, b + 1);
		start = cpu_now_ns();
		for (int i = 0; i < BATCH; i++)
			give(batches[b % 2][i]);
		atomic_fetch_add(&freeing_ns, cpu_now_ns() - start);
		atomic_store_explicit(&taken, b + 1, memory_order_release);
	}
	return NULL;
}

static void
handoff(void)
{
	/* not 0: see read_arguments */
	unsigned long a_round = options.pairs < BATCH ? 1 : options.pairs / BATCH, b = 0;
	uint64_t cpu, allocating_ns = 0;
	pthread_t thread;

	cpu_ns = calloc(options.rounds, sizeof(*cpu_ns));
	if (!cpu_ns)
		api_fail("calloc", ENOMEM);
	pin_to(options.cpu < 0 ? -1 : 0);
	if (pthread_create(&thread, NULL, handoff_thread, NULL))
		api_fail("pthread_create", errno);
	for (unsigned long r = 0; r <= options.rounds; r++) {
		uint64_t start = now_ns();

		for (unsigned long end = b + a_round; b < end; b++) {
			if (b >= 2)
				wait_until(&taken, b - 1);
			cpu = cpu_now_ns();
			for (int i = 0; i < BATCH; i++)
				batches[b % 2][i] = take(BYTES);
			allocating_ns += cpu_now_ns() - cpu;
			atomic_store_explicit(&handed, b + 1, memory_order_release);
		}
		wait_until(&taken, b);
		if (r)
			round_ns[r - 1] = (double)(now_ns() - start) / (double)(a_round * BATCH);
		cpu = allocating_ns + atomic_exchange(&freeing_ns, 0);
		allocating_ns = 0;
		if (r)
			cpu_ns[r - 1] = (double)cpu / (double)(a_round * BATCH);
	}
	pthread_join(thread, NULL);
}

/* ---- live */

static uint64_t *live;

void measured_live(unsigned long n, uint64_t *seed);

static size_t
size_for(uint64_t *seed)
{
	return (1 + random_next(seed) % 32) * GRAIN;
}

__attribute__((noinline)) void
measured_live(unsigned long n, uint64_t *seed)
{
	while (n--) {
		uint64_t *one = &live[random_next(seed) % options.live];

		give(*one);
		*one = take(size_for(seed));
	}
}

static void
live_pairs(void)
{
	unsigned long all = options.live + options.holes;
	uint64_t seed = 88172645463325252u, start;

	live = calloc(all + 1, sizeof(*live));
	if (!live || !options.live)
		api_fail("--live", ENOMEM);
	for (unsigned long i = 0; i < all; i++)
		live[i] = take(size_for(&seed));
	for (unsigned long i = 1; i < all; i++) { /* shuffled: holes are everywhere */
		unsigned long j = random_next(&seed) % (i + 1);
		uint64_t one = live[i];

		live[i] = live[j];
		live[j] = one;
	}
	for (unsigned long i = options.live; i < all; i++)
		give(live[i]);
	for (unsigned long i = 0; i < options.pairs; i++) { /* as measured_live, not counted */
		uint64_t *one = &live[random_next(&seed) % options.live];

		give(*one);
		*one = take(size_for(&seed));
	}
	for (unsigned long r = 0; r < options.rounds; r++) {
		start = now_ns();
		measured_live(options.pairs, &seed);
		round_ns[r] = (double)(now_ns() - start) / (double)options.pairs;
	}
}

/* ---- trace */

struct event {
	char kind; /* I, A, F, P */
	uint32_t id;
	uint64_t bytes;
};

static struct event *events;
static size_t n_events, n_ids;
static uint64_t *addresses, *sizes;
static bool *initial;
static uint32_t *call_ns; /* of every call after the first round */
static size_t n_calls, n_calls_max;

static void
trace_read(void)
{
	FILE *file = options.trace ? fopen(options.trace, "r") : NULL;
	size_t room = 0;
	char line[256];

	if (!file)
		api_fail("--trace", errno);
	while (fgets(line, sizeof(line), file)) {
		char *end = line + 1;
		uint64_t id = strtoull(end, &end, 10), bytes = strtoull(end, &end, 10);
		bool named = line[0] && strchr("IAF", line[0]);

		if (n_events == room) {
			room = room ? 2 * room : 1024;
			events = realloc(events, room * sizeof(*events));
			if (!events)
				api_fail("realloc", ENOMEM);
		}
		if ((!named && line[0] != 'P') || id >= ID_MAX)
			api_fail("malformed line", (long)n_events + 1);
		events[n_events++] =
			(struct event){ line[0], named ? (uint32_t)id : 0, named ? bytes : 0 };
		if (named && id >= n_ids)
			n_ids = (size_t)id + 1;
	}
	fclose(file);
	addresses = calloc(n_ids + 1, sizeof(*addresses));
	sizes = calloc(n_ids + 1, sizeof(*sizes));
	initial = calloc(n_ids + 1, sizeof(*initial));
	n_calls_max = (2 * n_events + 2 * n_ids) * options.rounds;
	call_ns = calloc(n_calls_max + 1, sizeof(*call_ns));
	if (!addresses || !sizes || !initial || !call_ns)
		api_fail("calloc", ENOMEM);
}

void measured_take(uint32_t id);
void measured_give(uint32_t id);

__attribute__((noinline)) void
measured_take(uint32_t id)
{
	addresses[id] = take(sizes[id]);
}

__attribute__((noinline)) void
measured_give(uint32_t id)
{
	give(addresses[id]);
}

static void
timed(uint32_t id, bool taking, CUstream stream, bool counted)
{
	uint64_t start = now_ns(), ns;

	if (taking)
		measured_take(id);
	else
		measured_give(id);
	ns = now_ns() - start;
	if (counted && n_calls < n_calls_max)
		call_ns[n_calls++] = (uint32_t)ns;
	if (taking)
		launch(addresses[id], stream);
	else
		addresses[id] = 0;
}

static void
trace_step(CUstream stream, bool counted)
{
	for (size_t i = 0; i < n_events; i++) {
		const struct event *e = &events[i];

		if (e->kind == 'A')
			sizes[e->id] = e->bytes;
		if (e->kind == 'A' || (e->kind == 'F' && addresses[e->id]))
			timed(e->id, e->kind == 'A', stream, counted);
	}
	for (size_t i = 0; i < n_ids; i++)
		if (addresses[i] && !initial[i])
			timed((uint32_t)i, false, stream, counted);
	for (size_t i = 0; i < n_ids; i++)
		if (initial[i] && !addresses[i])
			timed((uint32_t)i, true, stream, counted);
	if (!options.peer)
		CALL(cuStreamSynchronize, stream);
}

static int
compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

/* The median of two readings in a row. */
static uint32_t
clock_ns(void)
{
	static uint32_t between[1001];

	for (size_t i = 0; i < 1001; i++) {
		uint64_t start = now_ns();

		between[i] = (uint32_t)(now_ns() - start);
	}
	qsort(between, 1001, sizeof(*between), compare);
	return between[500];
}

static void
trace(void)
{
	CUstream stream = stream_new();
	uint32_t clock = clock_ns();
	size_t done = 0;

	trace_read();
	for (size_t i = 0; i < n_events; i++)
		if (events[i].kind == 'I') {
			sizes[events[i].id] = events[i].bytes;
			initial[events[i].id] = true;
			timed(events[i].id, true, stream, false);
		}
	trace_step(stream, false);
	for (unsigned long r = 0; r < options.rounds; r++) {
		double sum = 0;

		trace_step(stream, true);
		for (size_t i = done; i < n_calls; i++)
			sum += call_ns[i] > clock ? call_ns[i] - clock : 0;
		round_ns[r] = n_calls > done ? sum / (double)(n_calls - done) : 0;
		done = n_calls;
	}
	qsort(call_ns, n_calls, sizeof(*call_ns), compare);
	printf("{\"calls\": %zu, \"clock_ns\": %u, \"p50_ns\": %u, \"p99_ns\": %u, "
	       "\"p999_ns\": %u, ",
	       n_calls, clock, call_ns[n_calls / 2], call_ns[n_calls * 99 / 100],
	       call_ns[n_calls * 999 / 1000]);
}

/* ---- main */

static const struct situation {
	const char *name;
	void (*run)(void);
} situations[] = {
	{ "pair", pair },       { "own", own },     { "handoff", handoff },
	{ "live", live_pairs }, { "trace", trace }, { NULL, NULL },
};

/* "cuda" is none. False: there is none of that name. */
static bool
peer_named(const char *name)
{
	options.peer = NULL;
	if (!strcmp(name, "cuda"))
		return true;
	for (options.peer = peers; options.peer->name; options.peer++)
		if (!strcmp(options.peer->name, name))
			return true;
	return false;
}

static bool
read_arguments(int argc, char **argv)
{
	static const struct option names[] = {
		{ "arm", required_argument, NULL, 'a' },
		{ "cpu", required_argument, NULL, 'c' },
		{ "rounds", required_argument, NULL, 'r' },
		{ "pairs", required_argument, NULL, 'p' },
		{ "threads", required_argument, NULL, 't' },
		{ "live", required_argument, NULL, 'l' },
		{ "holes", required_argument, NULL, 'h' },
		{ "trace", required_argument, NULL, 'T' },
		{ NULL, 0, NULL, 0 },
	};
	int name;

	while ((name = getopt_long(argc, argv, "", names, NULL)) != -1) {
		unsigned long value = optarg ? strtoul(optarg, NULL, 10) : 0;

		switch (name) {
		case 'a':
			if (!optarg || !peer_named(optarg))
				return false;
			break;
		case 'c':
			options.cpu = optarg ? (int)strtol(optarg, NULL, 10) : -1;
			break;
		case 'r':
			options.rounds = value;
			break;
		case 'p':
			options.pairs = value;
			break;
		case 't':
			options.threads = value;
			break;
		case 'l':
			options.live = value;
			break;
		case 'h':
			options.holes = value;
			break;
		case 'T':
			options.trace = optarg;
			break;
		default:
			return false;
		}
	}
	options.situation = optind + 1 == argc ? argv[optind] : "";
	return options.pairs >= BATCH && options.rounds && options.threads &&
	       options.threads <= THREADS_MAX;
}

int
main(int argc, char **argv)
{
	const struct situation *s = situations;

	if (!read_arguments(argc, argv)) {
		fputs("usage: hits [--arm cuda|mimalloc|cub] [--cpu N] [--rounds N] [--pairs N] "
		      "[--threads N] [--live N] [--holes N] [--trace FILE] SITUATION\n",
		      stderr);
		return 2;
	}
	while (s->name && strcmp(s->name, options.situation))
		s++;
	if (!s->name)
		api_fail("no such situation", 0);
	pin_to(options.cpu);
	if (options.peer) {
		take_library();
	} else {
		context = api_open(ROAD_PROC);
		fill = api_kernel("sim_fill");
	}
	round_ns = calloc(options.rounds, sizeof(*round_ns));
	if (!round_ns)
		api_fail("calloc", ENOMEM);
	s->run();
	printf("%s\"situation\": \"%s\", \"arm\": \"%s\", \"ns\": [", s->run == trace ? "" : "{",
	       s->name, options.peer ? options.peer->name : "cuda");
	for (unsigned long r = 0; r < options.rounds; r++)
		printf("%s%.2f", r ? ", " : "", round_ns[r]);
	for (unsigned long r = 0; cpu_ns && r < options.rounds; r++)
		printf("%s%.2f", r ? ", " : "], \"cpu_ns\": [", cpu_ns[r]);
	printf("]}\n");
	return 0;
}
