/* SPDX-License-Identifier: MIT */
/* config/site.c: what a site's file sets, what it may not, and how it lies below the environment.
 */
#include "config/site.h"

#include <errno.h>

#include "tests/unit/config/check.h"
#include "tests/unit/config/fake_env.h"

static const uint64_t MIB = 1 << 20;

static struct fake_env lines; /* that the file gave */
static struct ca_site site;

/* Parses `length` bytes, which stay as they were. Returns the number of bad settings. */
static int
parse_bytes(const char *text, size_t length)
{
	char *copy = test_malloc(length + 1);
	int bad;

	memcpy(copy, text, length);
	copy[length] = 'x';
	lines.lines = 0;
	memset(&site, 0xa5, sizeof(site));
	errno = 77;
	bad = ca_site_parse(&site, "/etc/a.conf", copy, length, fake_report, &lines);
	assert_int_equal(errno, 77);
	assert_memory_equal(copy, text, length);
	assert_int_equal(copy[length], 'x');
	test_free(copy);
	return bad;
}

static int
parse(const char *text)
{
	return parse_bytes(text, strlen(text));
}

static int
load(struct fake_env *env, struct ca_config *ret_config)
{
	env->lines = 0;
	return ca_config_load_over(&site, ret_config, fake_get, env, NULL, fake_report, env);
}

static void
test_nothing_is_the_default(void **state)
{
	static const char *const empty[] = { "", "\n", "# CACHEALLOC_LIMIT=1G\n\n \t\n  # x" };
	struct ca_config defaults, config;
	struct fake_env env = { 0 };

	ca_config_default(&defaults);
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(parse(empty[i]), 0);
		assert_int_equal(lines.lines, 0);
		assert_true(site.set == 0);
		assert_int_equal(load(&env, &config), 0);
		assert_memory_equal(&config, &defaults, sizeof(config));
	}
}

static void
test_below_the_environment(void **state)
{
	struct fake_env env = { 0 };
	struct ca_config config;

	assert_int_equal(parse("CACHEALLOC_CONF=reuse_slack_mb:128,max_cached_mb:64\r\n"
			       "  CACHEALLOC_CONF=min_reserve_mb:8 \n"
			       "CACHEALLOC_LOG=info\nCACHEALLOC_LIMIT=90%\n"
			       "CACHEALLOC_STATS=/tmp/%p.json"),
			 0);
	fake_set(&env, "CACHEALLOC_CONF", "reuse_slack_mb:32");
	fake_set(&env, "CACHEALLOC_LOG", "off");
	fake_set(&env, "CACHEALLOC_STATS", "");
	assert_int_equal(load(&env, &config), 0);
	assert_int_equal(env.lines, 0);
	assert_int_equal(config.reuse_slack_bytes, 32 * MIB);
	assert_int_equal(config.max_cached_bytes, 64 * MIB);
	assert_int_equal(config.min_reserve_bytes, 8 * MIB);
	assert_int_equal(config.log_level, CA_LOG_OFF);
	assert_true(config.limit.share == CA_WHOLE / 10 * 9);
	assert_string_equal(config.stats_file, "/tmp/%p.json");
	fake_set(&env, "CACHEALLOC_LIMIT", "1G");
	fake_set(&env, "CACHEALLOC_STATS", "0");
	assert_int_equal(load(&env, &config), 0);
	assert_true(config.limit.bytes == 1024 * MIB && !config.limit.share);
	assert_string_equal(config.stats_file, "");
}

/* The environment has no name for it, so nothing there changes it. */
static void
test_force(void **state)
{
	struct fake_env env = { 0 };
	struct ca_config config;

	assert_int_equal(parse("force  \tCACHEALLOC_LIMIT=8G\nCACHEALLOC_LIMIT=4G\n"), 0);
	fake_set(&env, "CACHEALLOC_LIMIT", "16G");
	assert_int_equal(load(&env, &config), 0);
	assert_true(config.forced_limit.bytes == 8192 * MIB);
	assert_true(config.limit.bytes == 16384 * MIB);
	assert_true(ca_config_is_limited(&config));
	env.lines = 0;
	ca_config_confirm(&config, fake_report, &env);
	assert_int_equal(env.lines, 2);
	assert_string_equal(env.line[0], "CACHEALLOC_LIMIT=16G");
	assert_string_equal(env.line[1], "force CACHEALLOC_LIMIT=8G");
}

/* One line each; what is good beside it holds. */
static void
test_bad_lines(void **state)
{
	static const struct {
		const char *text, *line;
	} bad[] = {
		{ "CACHEALLOC_LIMT=8G", "CACHEALLOC_LIMT: unknown variable is ignored: did you "
					"mean CACHEALLOC_LIMIT?" },
		{ "CACHEALLOC_LIMIT=-1", "CACHEALLOC_LIMIT: '-1' is ignored: expected a size" },
		{ "CACHEALLOC_LIMIT=\"8G\"", "CACHEALLOC_LIMIT: '\"8G\"' is ignored" },
		{ "CACHEALLOC_LIMIT = 8G", "CACHEALLOC_LIMIT : unknown variable is ignored" },
		{ "CACHEALLOC_LIMIT=", "'CACHEALLOC_LIMIT=' is ignored: expected CACHEALLOC_NAME" },
		{ "CACHEALLOC_LIMIT", "'CACHEALLOC_LIMIT' is ignored: expected CACHEALLOC_NAME" },
		{ "LIMIT=8G", "'LIMIT=8G' is ignored: expected CACHEALLOC_NAME=value" },
		{ "export CACHEALLOC_LIMIT=8G", "'export CACHEALLOC_LIMIT=8G' is ignored" },
		{ "=", "'=' is ignored" },
		{ "force", "'force' is ignored" },
		{ "force ", "'force' is ignored" },
		{ "force CACHEALLOC_LIMIT=x", "CACHEALLOC_LIMIT: 'x' is ignored: expected a size" },
		{ "force CACHEALLOC_LOG=off",
		  "CACHEALLOC_LOG is ignored: only CACHEALLOC_LIMIT can be forced" },
		{ "force CACHEALLOC_STRICT=1", "CACHEALLOC_STRICT is ignored: a file must not" },
		{ "CACHEALLOC_STRICT=1", "CACHEALLOC_STRICT is ignored: a file must not end" },
		{ "CACHEALLOC_TAKEOVER=torch", "CACHEALLOC_TAKEOVER is ignored: it is needed "
					       "before this file is read" },
		{ "CACHEALLOC_BUILD=x", "CACHEALLOC_BUILD: unknown variable is ignored" },
		{ "CACHEALLOC_CONF=background_thread:True",
		  "CACHEALLOC_CONF: background_thread is ignored: not in this version" },
		{ "CACHEALLOC_CONF=nonsense:1", "CACHEALLOC_CONF: unknown key 'nonsense'" },
		{ "CACHEALLOC_CONF=zero:2", "CACHEALLOC_CONF: zero: '2' is ignored" },
		{ "CACHEALLOC_CONF=backend:native", "CACHEALLOC_CONF: backend is ignored" },
		{ "CACHEALLOC_CONF=max_split_size_mb:15",
		  "CACHEALLOC_CONF: max_split_size_mb: '15' is ignored: expected at least" },
		{ "CACHEALLOC_STATS=json", "CACHEALLOC_STATS: 'json' is ignored" },
		{ "\x1b[31m", "'\\x1b[31m' is ignored" },
	};
	struct ca_config config;
	struct fake_env env = { 0 };
	char text[256], start[256];

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		snprintf(text, sizeof(text),
			 "#\nCACHEALLOC_CONF=reuse_slack_mb:3\n%s\n"
			 "CACHEALLOC_CONF=min_reserve_mb:4",
			 bad[i].text);
		snprintf(start, sizeof(start), "/etc/a.conf:3: %s", bad[i].line);
		assert_int_equal(parse(text), 1);
		assert_int_equal(lines.lines, 1);
		assert_memory_equal(lines.line[0], start, strlen(start));
		assert_int_equal(load(&env, &config), 0);
		assert_int_equal(config.reuse_slack_bytes, 3 * MIB);
		assert_int_equal(config.min_reserve_bytes, 4 * MIB);
		assert_false(config.strict || config.take_over);
		assert_false(ca_config_is_limited(&config));
	}
}

static void
test_given_twice(void **state)
{
	assert_int_equal(parse("CACHEALLOC_LIMIT=1G\nCACHEALLOC_LIMIT=2G\n"
			       "CACHEALLOC_CONF=zero:1\nCACHEALLOC_CONF=zero:0\n"
			       "force CACHEALLOC_LIMIT=3G\nforce CACHEALLOC_LIMIT=4G\n"),
			 3);
	assert_non_null(
		strstr(lines.line[0], "a.conf:2: CACHEALLOC_LIMIT is given more than once"));
	assert_non_null(strstr(lines.line[1], "a.conf:4: CACHEALLOC_CONF: zero is given more"));
	assert_non_null(strstr(lines.line[2], "a.conf:6: force CACHEALLOC_LIMIT is given more"));
	assert_true(site.config.limit.bytes == 2048 * MIB && !site.config.zero);
	assert_true(site.config.forced_limit.bytes == 4096 * MIB);
}

static void
test_any_bytes(void **state)
{
	static const char zero[] = "CACHEALLOC_LIMIT=1G\0junk\nCACHEALLOC_CONF=zero:1";
	uint64_t seed = check_seed("any bytes");
	char text[4096];

	assert_int_equal(parse_bytes(zero, sizeof(zero) - 1), 1);
	assert_string_equal(lines.line[0],
			    "/etc/a.conf:1: the line is ignored: it has a zero byte");
	assert_true(site.config.zero && !site.config.limit.bytes);
	for (unsigned round = 0; round < 300; round++) {
		for (size_t i = 0; i < sizeof(text); i++)
			text[i] = (char)(check_random(&seed) % (round % 2 ? 256 : 12));
		parse_bytes(text, check_random(&seed) % sizeof(text));
		for (int i = 0; i < lines.lines && i < FAKE_LINES; i++)
			for (const char *c = lines.line[i]; *c; c++)
				assert_in_range((unsigned char)*c, ' ', '~');
	}
}

/* No line is longer than a buffer, and no more are shown than of the environment. */
static void
test_long_and_many(void **state)
{
	static char text[CA_SITE_BYTES_MAX];
	size_t length = 0;

	memset(text, 'a', sizeof(text));
	assert_int_equal(parse_bytes(text, sizeof(text)), 1);
	memcpy(text, "CACHEALLOC_CONF=", 16);
	assert_int_equal(parse_bytes(text, sizeof(text)), 1);
	assert_non_null(strstr(lines.line[0], "(too long)"));
	while (length < sizeof(text) - 4)
		length += (size_t)snprintf(text + length, 4, "x\n");
	assert_int_equal(parse_bytes(text, length), length / 2);
	assert_int_equal(lines.lines, CA_CONFIG_REPORT_MAX + 1);
}

/* Rules between keys: the user's values stand, and are no fault of the user's. */
static void
test_values_that_do_not_go_together(void **state)
{
	static const char *const cases[][2] = {
		{ "large_segment_size_mb:64", "max_split_size_mb:32" },
		{ "max_split_size_mb:32", "large_segment_size_mb:64" },
		{ "max_non_split_rounding_mb:30", "large_segment_size_mb:64" },
		{ "large_segment_size_mb:64", "max_non_split_rounding_mb:30" },
		{ "min_size:2M", "max_size:1M" },
		{ "max_size:1M", "min_size:2M" },
	};
	struct ca_config with, without;
	struct fake_env env = { 0 };
	char text[128];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		snprintf(text, sizeof(text), "CACHEALLOC_CONF=%s", cases[i][0]);
		assert_int_equal(parse(text), 0);
		fake_set(&env, "CACHEALLOC_CONF", cases[i][1]);
		fake_set(&env, "CACHEALLOC_STRICT", "1");
		assert_int_equal(load(&env, &with), 0);
		assert_int_equal(env.lines, 1);
		assert_non_null(strstr(env.line[0], "do not go with the environment's"));
		assert_int_equal(fake_load(&env, &without), 0);
		assert_memory_equal(&with, &without, sizeof(with));
	}
}

static void
test_intervals_and_take_overs(void **state)
{
	struct fake_env env = { 0 };
	struct ca_config config;

	assert_int_equal(
		parse("CACHEALLOC_STATS=s.json\nCACHEALLOC_CONF=async:driver,max_split_size_mb:50"),
		0);
	fake_set(&env, "CACHEALLOC_STATS_INTERVAL", "1s");
	fake_set(&env, "CACHEALLOC_TAKEOVER", "torch");
	fake_set(&env, CA_TORCH_CONF, "max_split_size_mb:60");
	assert_int_equal(load(&env, &config), 0);
	assert_false(config.stats_stderr);
	assert_string_equal(config.stats_file, "s.json");
	assert_int_equal(config.async, CA_ASYNC_DRIVER);
	assert_int_equal(config.max_split_size_bytes, 60 * MIB);
	assert_int_equal(parse("CACHEALLOC_STATS_INTERVAL=1s"), 0);
	memset(&env, 0, sizeof(env));
	assert_int_equal(load(&env, &config), 0);
	assert_true(config.stats_stderr);
	fake_set(&env, "CACHEALLOC_STATS", "0");
	assert_int_equal(load(&env, &config), 0);
	assert_false(config.stats_stderr);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing_is_the_default),
		cmocka_unit_test(test_below_the_environment),
		cmocka_unit_test(test_force),
		cmocka_unit_test(test_bad_lines),
		cmocka_unit_test(test_given_twice),
		cmocka_unit_test(test_any_bytes),
		cmocka_unit_test(test_long_and_many),
		cmocka_unit_test(test_values_that_do_not_go_together),
		cmocka_unit_test(test_intervals_and_take_overs),
	};

	return cmocka_run_group_tests_name("site", tests, NULL, NULL);
}
