/* SPDX-License-Identifier: MIT */
/* Statistics as text: exact JSON of a small case,
 * a table that fits 80 columns, errors of the writer. */
#include "tests/unit/allocator/fixture.h"

#include <errno.h>

#include "allocator/api/stats_text.h"

static char text[8192];

static struct ca_stats
sample(void)
{
	struct ca_stats stats = { 0 };

	stats.alloc_calls = 812443;
	stats.free_calls = 811902;
	stats.cache_hits = 812229;
	stats.driver_alloc_calls = 214;
	stats.driver_ns = 44940000;
	stats.largest_free_block_bytes = UINT64_MAX;
	stats.finished_only_reasons = CA_REASON_UNSEEN_CALL | CA_REASON_IPC;
	stats.reserved_bytes = (struct ca_gauge){ 10 * GIB, 11 * GIB, 12 * GIB };
	return stats;
}

static void
test_json(void **state)
{
	struct ca_emit_buffer buffer = { .text = text, .size = sizeof(text) };
	struct ca_stats stats = sample();
	struct ca_emit_device devices[] = {
		{ .index = 0, .name = "a \"b\"\\\n\001", .uuid = NULL, .stats = &stats },
		{ .index = 3, .name = NULL, .uuid = "GPU-1", .stats = &stats },
	};
	struct ca_emit_process process = { .site_conf = "/etc/a.conf" };
	const char *start =
		"{\"format\":\"stats\",\"format_version\":1,\"site_conf\":\"/etc/a.conf\","
		"\"devices\":[{\"index\":0,"
		"\"name\":\"a \\\"b\\\"\\\\\\u000a\\u0001\",\"uuid\":null,\"version\":\"";

	assert_int_equal(ca_emit_stats_json(&process, devices, 2, ca_emit_to_buffer, &buffer), 0);
	assert_int_equal(buffer.length, strlen(text));
	assert_memory_equal(text, start, strlen(start));
	assert_non_null(strstr(text, "\"alloc_calls\":812443,\"free_calls\":811902,"));
	assert_non_null(strstr(text, "\"largest_free_block_bytes\":18446744073709551615"));
	assert_non_null(strstr(text,
			       "\"reserved_bytes\":{\"current\":10737418240,\"peak\":11811160064,"
			       "\"total\":12884901888}"));
	assert_non_null(strstr(text, ",\"finished_only_reasons\":[\"unseen_call\",\"ipc\"],"));
	assert_non_null(strstr(text, "},{\"index\":3,\"name\":null,\"uuid\":\"GPU-1\","));
	assert_string_equal(text + strlen(text) - 4, "}]}\n");
#define X(name) assert_non_null(strstr(text, "\"" #name "\":"));
	CA_STATS_COUNTERS(X)
	CA_STATS_FIGURES(X)
	CA_STATS_GAUGES(X)
#undef X
	buffer.length = 0;
	process.site_conf = NULL;
	assert_int_equal(ca_emit_stats_json(&process, NULL, 0, ca_emit_to_buffer, &buffer), 0);
	assert_string_equal(text, "{\"format\":\"stats\",\"format_version\":1,\"site_conf\":null,"
				  "\"devices\":[]}\n");
}

static void
test_table(void **state)
{
	struct ca_emit_buffer buffer = { .text = text, .size = sizeof(text) };
	struct ca_stats stats = sample();
	struct ca_emit_device device = { .index = 0,
					 .name = "NVIDIA with a very very long product name",
					 .stats = &stats };
	struct ca_emit_process process = { .program = "./train",
					   .pid = 4242,
					   .elapsed_ns = 133000000000 };
	char *line, *save = NULL;

	assert_int_equal(ca_emit_stats_table(&process, &device, 1, ca_emit_to_buffer, &buffer), 0);
	assert_non_null(strstr(text, "pid 4242  ./train  2m13s\n"));
	assert_non_null(strstr(text, "99.97% served from cache\n"));
	assert_non_null(strstr(text, "214 alloc, 0 free, 0 OOM; 44.9 ms inside\n"));
	assert_non_null(strstr(text, "  reserved from driver"));
	assert_non_null(strstr(text, "reuse   only finished memory: memory of another process"));
	assert_null(strstr(text, "may still be in use"));
	assert_null(strstr(text, "passed"));
	assert_null(strstr(text, "other  "));
	assert_null(strstr(text, "site"));
	process.site_conf = "/etc/a.conf";
	buffer.length = 0;
	assert_int_equal(ca_emit_stats_table(&process, &device, 1, ca_emit_to_buffer, &buffer), 0);
	assert_non_null(strstr(text, "\nsite    settings of /etc/a.conf\n"));
	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		assert_true(strlen(line) <= 80);
}

static void
test_what_may_be_in_use_has_a_row(void **state)
{
	struct ca_emit_buffer buffer = { .text = text, .size = sizeof(text) };
	struct ca_stats stats = { .allocated_bytes = { 1 << 20, 1 << 20, 1 << 20 },
				  .active_bytes = { 3 << 20, 3 << 20, 3 << 20 } };
	struct ca_emit_device device = { .stats = &stats };
	struct ca_emit_process process = { 0 };

	assert_int_equal(ca_emit_stats_table(&process, &device, 1, ca_emit_to_buffer, &buffer), 0);
	assert_non_null(strstr(text, "\n  freed, may still be in use       2.00 MiB\n"));
}

static void
test_buffer_is_cut(void **state)
{
	char small[8];
	struct ca_emit_buffer buffer = { .text = small, .size = sizeof(small) };

	memset(small, 'x', sizeof(small));
	assert_int_equal(ca_emit_to_buffer(&buffer, "abcd", 4), 0);
	assert_string_equal(small, "abcd");
	assert_int_equal(ca_emit_to_buffer(&buffer, "efghij", 6), 0);
	assert_string_equal(small, "abcdefg");
	assert_int_equal(ca_emit_to_buffer(&buffer, "k", 1), 0);
	assert_string_equal(small, "abcdefg");
	assert_int_equal(buffer.length, 11);
	buffer = (struct ca_emit_buffer){ .text = NULL, .size = 0 };
	assert_int_equal(ca_emit_to_buffer(&buffer, "abc", 3), 0);
	assert_int_equal(buffer.length, 3);
}

static int
broken_pipe(void *arg, const char *piece, size_t length)
{
	(*(int *)arg)++;
	return -EPIPE;
}

static void
test_writer_fails(void **state)
{
	struct ca_stats stats = sample();
	struct ca_emit_device device = { .stats = &stats };
	struct ca_emit_process process = { 0 };
	int calls = 0;

	assert_int_equal(ca_emit_stats_json(&process, &device, 1, broken_pipe, &calls), -EPIPE);
	assert_int_equal(calls, 1);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_json),
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_what_may_be_in_use_has_a_row),
		cmocka_unit_test(test_buffer_is_cut),
		cmocka_unit_test(test_writer_fails),
	};

	return cmocka_run_group_tests_name("allocator-emit", tests, NULL, NULL);
}
