/* SPDX-License-Identifier: MIT */
/*
 * Stands for libcachealloc.so in tests of the command: at exit it writes the statistics file that
 * is asked for, with figures from STUB_*, and can imitate the simulator's. It hooks nothing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char stub_version[] = "cachealloc 0.1.0";

static long
figure(const char *name, long otherwise)
{
	const char *text = getenv(name);

	return text ? atol(text) : otherwise;
}

static FILE *
pattern_open(const char *pattern)
{
	char path[4096];
	size_t length = 0;

	for (; *pattern && length < sizeof(path) - 32; pattern++) {
		if (!strncmp(pattern, "%p", 2))
			length += (size_t)sprintf(path + length, "%d", getpid()), pattern++;
		else if (!strncmp(pattern, "%%", 2))
			path[length++] = *pattern++;
		else
			path[length++] = *pattern;
	}
	path[length] = '\0';
	return fopen(path, "w");
}

static void
gauge_print(FILE *file, const char *name, long value)
{
	fprintf(file, ",\"%s\":{\"current\":0,\"peak\":%ld,\"total\":%ld}", name, value, value);
}

static void
stats_write(const char *pattern, int stock)
{
	static const char *const zeros[] = {
		"free_calls",     "cache_hits",    "largest_free_block_bytes",
		"ooms",           "alloc_retries", "flushes",
		"order_waits",    "order_marks",   "host_syncs",
		"settles",        "pdl_stripped",  "order_fallbacks",
		"pending_blocks", "unseen_calls"
	};
	static const char *const gauges[] = { "requested_bytes", "allocated_bytes", "active_bytes",
					      "cached_bytes" };
	FILE *file = pattern_open(pattern);

	if (!file)
		return;
	fprintf(file, "{\"format\":\"stats\",\"format_version\":1,\"devices\":[{\"index\":0");
	fprintf(file, ",\"alloc_calls\":%ld",
		figure(stock ? "STUB_ALLOCS_A" : "STUB_ALLOCS", 1000));
	fprintf(file, ",\"driver_alloc_calls\":%ld,\"driver_free_calls\":%ld,\"driver_ns\":%ld",
		stock ? 1000L : 4L, stock ? 990L : 1L, stock ? 5000000L : 20000L);
	fprintf(file, ",\"other_alloc_calls\":%ld", figure("STUB_OTHER", 0));
	for (size_t i = 0; i < sizeof(zeros) / sizeof(*zeros); i++)
		fprintf(file, ",\"%s\":0", zeros[i]);
	for (size_t i = 0; i < sizeof(gauges) / sizeof(*gauges); i++)
		gauge_print(file, gauges[i], 0);
	gauge_print(file, "reserved_bytes", stock ? 100L << 20 : 110L << 20);
	fprintf(file, "}]}\n");
	fclose(file);
}

static void
simulator_write(const char *path, int stock)
{
	FILE *file = pattern_open(path);

	if (!file)
		return;
	fprintf(file, "{\"calls\":{\"cuInit\":1,\"cuMemAlloc_v2\":%d,\"cuMemFree_v2\":%d},",
		stock ? 500 : 3, stock ? 500 : 0);
	fprintf(file, "\"peak_bytes\":[%ld],\"races\":%ld}\n", 64L << 20, figure("STUB_RACES", 0));
	fclose(file);
}

__attribute__((destructor)) static void
finish(void)
{
	const char *disable = getenv("CACHEALLOC_DISABLE"), *stats = getenv("CACHEALLOC_STATS");
	const char *simulator = getenv("SIMCUDA_STATS");
	int stock = disable && !strcmp(disable, "count");

	usleep((useconds_t)figure(stock ? "STUB_SLEEP_A_US" : "STUB_SLEEP_B_US", 0));
	if (stats && !getenv("STUB_SILENT"))
		stats_write(stats, stock);
	if (simulator && getenv("STUB_SIMULATOR"))
		simulator_write(simulator, stock);
}
