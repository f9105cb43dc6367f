/* SPDX-License-Identifier: MIT */
/* knobs.c: what is accepted, and that everything else is refused with a line that names it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "tests/sim/knobs.h"

static const char *variable, *value; /* the whole environment of a case */
static struct simb_knobs knobs;
static char error[1024];

static char *
get(const char *name)
{
	return variable && !strcmp(name, variable) ? (char *)(uintptr_t)value : NULL;
}

static int
parse(const char *name, const char *text)
{
	variable = name;
	value = text;
	error[0] = '\0';
	return simb_knobs_parse(&knobs, get, error, sizeof(error));
}

static void
test_defaults(void **state)
{
	assert_int_equal(parse(NULL, NULL), 0);
	assert_int_equal(knobs.n_devices, 1);
	assert_int_equal(knobs.mem_bytes, 16ULL << 30);
	assert_int_equal(knobs.driver_version, 13000);
	assert_int_equal(knobs.clock, SIM_CLOCK_REAL);
	assert_int_equal(knobs.races, SIM_RACES_OFF);
	assert_false(knobs.strict);
	assert_int_equal(knobs.log_fd, -1);
	assert_int_equal(knobs.n_fails, 0);
	assert_string_equal(knobs.stats_path, "");
	assert_string_equal(knobs.latency_source, "none");
	for (int i = 0; i < SIMB_NAMES; i++)
		assert_true(!knobs.latency[i].fixed_ns && !knobs.latency[i].ns_per_mib);
}

static void
test_units(void **state)
{
	uint64_t n = 77;

	assert_true(simb_bytes_parse("7", &n) && n == 7);
	assert_true(simb_bytes_parse("3K", &n) && n == 3 << 10);
	assert_true(simb_bytes_parse("5M", &n) && n == 5 << 20);
	assert_true(simb_bytes_parse("17179869183G", &n) && n == 17179869183ULL << 30);
	assert_true(simb_time_parse("250ns", &n) && n == 250);
	assert_true(simb_time_parse("3us", &n) && n == 3000);
	assert_true(simb_time_parse("2ms", &n) && n == 2000000);
	assert_true(simb_time_parse("1s", &n) && n == 1000000000);
	n = 77;
	for (const char *const *bad =
		     (const char *const[]){ "", "K", "1k", "1 K", " 1", "+1", "-1", "0x10", "1.5G",
					    "1GB", "17179869184G", "18446744073709551616", NULL };
	     *bad; bad++)
		assert_false(simb_bytes_parse(*bad, &n));
	for (const char *const *bad =
		     (const char *const[]){ "", "us", "1", "1m", "1us ", "18446744074s", NULL };
	     *bad; bad++)
		assert_false(simb_time_parse(*bad, &n));
	assert_int_equal(n, 77);
}

static void
test_fail(void **state)
{
	assert_int_equal(parse("SIMCUDA_FAIL", "cuMemAlloc_v2:3:2,*:10+:999"), 0);
	assert_int_equal(knobs.n_fails, 2);
	assert_int_equal(knobs.fails[0].name, SIMB_NAME_cuMemAlloc_v2);
	assert_int_equal(knobs.fails[0].nth, 3);
	assert_false(knobs.fails[0].onwards);
	assert_int_equal(knobs.fails[0].code, 2);
	assert_int_equal(knobs.fails[1].name, -1);
	assert_int_equal(knobs.fails[1].nth, 10);
	assert_true(knobs.fails[1].onwards);
	assert_int_equal(knobs.fails[1].code, 999);
}

static void
test_latency(void **state)
{
	assert_int_equal(parse("SIMCUDA_LATENCY", "cuMemAlloc_v2:100us,cuInit:5ns"), 0);
	assert_int_equal(knobs.latency[SIMB_NAME_cuMemAlloc_v2].fixed_ns, 100000);
	assert_int_equal(knobs.latency[SIMB_NAME_cuInit].fixed_ns, 5);
	assert_int_equal(knobs.latency[SIMB_NAME_cuMemFree_v2].fixed_ns, 0);
	assert_string_equal(knobs.latency_source, "custom");
	assert_int_equal(parse("SIMCUDA_LATENCY", "published"), 0);
	assert_int_equal(knobs.latency[SIMB_NAME_cuMemAlloc_v2].fixed_ns, 59200);
	assert_int_equal(knobs.latency[SIMB_NAME_cuMemFree_v2].fixed_ns, 46000);
	assert_int_equal(parse("SIMCUDA_LATENCY", "h200"), -EINVAL);
	assert_non_null(strstr(error, "h200 does not exist"));
}

static void
test_manual_clock(void **state)
{
	assert_int_equal(parse("SIMCUDA_CLOCK", "manual"), 0);
	assert_int_equal(knobs.clock, SIM_CLOCK_MANUAL);
	assert_int_equal(knobs.asked_max, 0);
	assert_int_equal(parse("SIMCUDA_CLOCK", "manual:16"), 0);
	assert_int_equal(knobs.clock, SIM_CLOCK_MANUAL);
	assert_int_equal(knobs.asked_max, 16);
}

static void
test_refused_by_name(void **state)
{
	static const char *const cases[][2] = {
		{ "SIMCUDA_DEVICES", "17" },      { "SIMCUDA_DEVICES", "1x" },
		{ "SIMCUDA_MEM", "2097151" },     { "SIMCUDA_DRIVER_VERSION", "10020" },
		{ "SIMCUDA_FAIL", ":1:2" },       { "SIMCUDA_FAIL", "cuInit:1" },
		{ "SIMCUDA_FAIL", "cuInit:+:2" }, { "SIMCUDA_FAIL", "cuInit:1:2:3" },
		{ "SIMCUDA_CLOCK", "Real" },      { "SIMCUDA_RACES", "" },
		{ "SIMCUDA_CLOCK", "manual:0" },  { "SIMCUDA_CLOCK", "manual:" },
		{ "SIMCUDA_CLOCK", "manual16" },  { "SIMCUDA_CLOCK", "manual:1000001" },
		{ "SIMCUDA_STRICT", "2" },        { "SIMCUDA_STATS", "%h" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(parse(cases[i][0], cases[i][1]), -EINVAL);
		assert_non_null(strstr(error, cases[i][0]));
		assert_non_null(strstr(error, "expected"));
		assert_null(strchr(error, '\n'));
	}
}

static void
test_too_many_rules_and_too_long_items(void **state)
{
	static const char rule[] = "*:1:1,";
	const size_t n_rule = sizeof(rule) - 1;
	char text[(SIMB_FAILS_MAX + 1) * sizeof(rule)];

	for (size_t i = 0; i <= SIMB_FAILS_MAX; i++)
		memcpy(text + i * n_rule, rule, n_rule);
	text[(SIMB_FAILS_MAX + 1) * n_rule - 1] = '\0'; /* in place of the last comma */
	assert_int_equal(parse("SIMCUDA_FAIL", text), -EINVAL);
	text[SIMB_FAILS_MAX * n_rule - 1] = '\0';
	assert_int_equal(parse("SIMCUDA_FAIL", text), 0);
	assert_int_equal(knobs.n_fails, SIMB_FAILS_MAX);
	memset(text, 'c', 300);
	memcpy(text + 300, ":1:1", sizeof(":1:1"));
	assert_int_equal(parse("SIMCUDA_FAIL", text), -EINVAL);
}

static void
test_path(void **state)
{
	char out[16];

	assert_int_equal(simb_path_expand("a-%p-%%.j", 42, out, sizeof(out)), 0);
	assert_string_equal(out, "a-42-%.j");
	assert_int_equal(simb_path_expand("%", 42, out, sizeof(out)), -EINVAL);
	assert_int_equal(simb_path_expand("%x", 42, out, sizeof(out)), -EINVAL);
	assert_int_equal(simb_path_expand("0123456789abcde", 42, out, sizeof(out)), 0);
	assert_int_equal(simb_path_expand("0123456789abcdef", 42, out, sizeof(out)), -ENAMETOOLONG);
}

static void
test_unknown_variable(void **state)
{
	char home[] = "HOME=/", good[] = "SIMCUDA_MEM=1", longer[] = "SIMCUDA_MEMORY=1";
	char *fine[] = { home, good, NULL }, *bad[] = { good, longer, NULL };

	assert_null(simb_knobs_unknown(fine));
	assert_null(simb_knobs_unknown(NULL));
	assert_ptr_equal(simb_knobs_unknown(bad), longer);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_defaults),
		cmocka_unit_test(test_units),
		cmocka_unit_test(test_fail),
		cmocka_unit_test(test_latency),
		cmocka_unit_test(test_manual_clock),
		cmocka_unit_test(test_refused_by_name),
		cmocka_unit_test(test_too_many_rules_and_too_long_items),
		cmocka_unit_test(test_path),
		cmocka_unit_test(test_unknown_variable),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
