/* SPDX-License-Identifier: MIT */
/* config/config.c: the settings that are accepted, and which of several stands. */
#include "config/config.h"

#include <errno.h>

#include "config/options.h"
#include "config/parse.h"
#include "tests/unit/config/check.h"
#include "tests/unit/config/fake_env.h"

static const uint64_t MIB = 1 << 20;

static void
test_defaults(void **state)
{
	struct fake_env env = { 0 };
	struct ca_config config, defaults;

	errno = 77;
	ca_config_default(&defaults);
	assert_int_equal(fake_load(&env, &config), 0);
	assert_int_equal(errno, 77);
	assert_int_equal(env.lines, 0);
	assert_memory_equal(&config, &defaults, sizeof(config));
	assert_true(config.max_split_size_bytes == UINT64_MAX);
	assert_int_equal(config.max_non_split_rounding_bytes, 20 * MIB);
	assert_int_equal(config.large_segment_size_bytes, 20 * MIB);
	assert_int_equal(config.reuse_slack_bytes, 256 * MIB);
	assert_false(config.reuse_finished || config.free_sync_host);
	assert_int_equal(config.disable, CA_DISABLE_OFF);
	assert_int_equal(config.log_level, CA_LOG_WARN);
	assert_false(config.strict || config.stats_stderr);
	assert_int_equal(config.stats_interval_ns, 0);
	assert_string_equal(config.log_file, "");
	assert_string_equal(config.stats_file, "");
}

static void
test_all_set(void **state)
{
	struct fake_env env;
	struct ca_config config;

	fake_good(&env, "max_split_size_mb:200, max_non_split_rounding_mb: 70,"
			"large_segment_size_mb:64,\treuse_slack_mb:0,reuse:Finished,"
			"free_sync:host,");
	assert_int_equal(fake_load(&env, &config), 0);
	assert_int_equal(env.lines, 0);
	assert_int_equal(config.max_split_size_bytes, 200 * MIB);
	assert_int_equal(config.max_non_split_rounding_bytes, 70 * MIB);
	assert_int_equal(config.large_segment_size_bytes, 64 * MIB);
	assert_int_equal(config.reuse_slack_bytes, 0);
	assert_true(config.reuse_finished && config.free_sync_host);
	assert_int_equal(config.disable, CA_DISABLE_COUNT);
	assert_int_equal(config.log_level, CA_LOG_DEBUG);
	assert_true(config.strict);
	assert_false(config.stats_stderr);
	assert_int_equal(config.stats_interval_ns, 10000000000);
	assert_string_equal(config.log_file, "log.%p");
	assert_string_equal(config.stats_file, "stats.%p.json");
}

static void
test_stats_forms(void **state)
{
	static const struct {
		const char *value;
		bool table;
		const char *file;
	} rows[] = {
		{ "1", true, "" },
		{ "on", true, "" },
		{ "True", true, "" },
		{ "0", false, "" },
		{ "off", false, "" },
		{ "", false, "" },
		{ "no", false, "" },
		{ "s.json", false, "s.json" },
		{ "./7", false, "./7" },
		{ "s.%p.%r.%h.%e.%t.%n.%%", false, "s.%p.%r.%h.%e.%t.%n.%%" },
	};
	struct fake_env env = { 0 };
	struct ca_config config;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		fake_set(&env, "CACHEALLOC_STATS", rows[i].value);
		assert_int_equal(fake_load(&env, &config), 0);
		assert_int_equal(config.stats_stderr, rows[i].table);
		assert_string_equal(config.stats_file, rows[i].file);
	}
}

/* What a PyTorch user may have in PYTORCH_CUDA_ALLOC_CONF. */
static void
test_segment_size_moves_rounding(void **state)
{
	struct fake_env env = { 0 };
	struct ca_config config;

	fake_set(&env, "CACHEALLOC_CONF", "large_segment_size_mb:64");
	assert_int_equal(fake_load(&env, &config), 0);
	assert_int_equal(config.max_non_split_rounding_bytes, 64 * MIB);
	fake_set(&env, "CACHEALLOC_CONF", "max_non_split_rounding_mb:30,large_segment_size_mb:64");
	assert_int_equal(fake_load(&env, &config), 1);
	assert_int_equal(config.max_non_split_rounding_bytes, 64 * MIB);
}

/* The rule between two keys does not depend on their order. */
static void
test_cross_rule(void **state)
{
	static const char *const good[] = { "max_split_size_mb:15,large_segment_size_mb:12",
					    "large_segment_size_mb:12,max_split_size_mb:15" };
	static const char *const bad[] = { "max_split_size_mb:30,large_segment_size_mb:64",
					   "large_segment_size_mb:64,max_split_size_mb:30" };
	struct fake_env env = { 0 };
	struct ca_config config;

	for (int i = 0; i < 2; i++) {
		fake_set(&env, "CACHEALLOC_CONF", good[i]);
		assert_int_equal(fake_load(&env, &config), 0);
		assert_int_equal(config.max_split_size_bytes, 15 * MIB);
		assert_int_equal(config.large_segment_size_bytes, 12 * MIB);
		fake_set(&env, "CACHEALLOC_CONF", bad[i]);
		assert_int_equal(fake_load(&env, &config), 1);
		assert_string_equal(env.line[0],
				    "CACHEALLOC_CONF: max_split_size_mb: '30' is ignored: "
				    "expected at least large_segment_size_mb (64)");
		assert_true(config.max_split_size_bytes == UINT64_MAX);
		assert_int_equal(config.large_segment_size_bytes, 64 * MIB);
	}
}

static void
report_needs_strict(void *arg, const char *line)
{
	assert_true(((struct ca_config *)arg)->strict);
}

/* Whoever reports a line may ask at once whether it is fatal. */
static void
test_strict_is_read_first(void **state)
{
	struct fake_env env = { 0 };
	struct ca_config config;

	fake_set(&env, "CACHEALLOC_CONF", "colour:blue");
	fake_set(&env, "CACHEALLOC_SNAPSHOT_ON", "8G");
	fake_set(&env, "CACHEALLOC_DISABLE", "x");
	fake_set(&env, "CACHEALLOC_STRICT", "1");
	assert_int_equal(
		ca_config_load(&config, fake_get, &env, NULL, report_needs_strict, &config), 3);
}

static void
test_a_window_of_sizes_that_nothing_is_in_is_refused(void **state)
{
	struct ca_config config;
	struct fake_env env;

	fake_good(&env, "min_size:2M,max_size:2M");
	assert_int_equal(fake_load(&env, &config), 0);
	assert_int_equal(config.min_size_bytes, config.max_size_bytes);
	fake_good(&env, "max_size:2M,min_size:3M");
	assert_int_equal(fake_load(&env, &config), 1);
	assert_non_null(strstr(env.line[0], "min_size is larger than max_size"));
	assert_int_equal(config.min_size_bytes, 0);
	assert_true(config.max_size_bytes == UINT64_MAX);
}

static void
test_expandable_segments_is_a_flag_or_auto(void **state)
{
	static const struct {
		const char *conf;
		enum ca_expandable is;
	} rows[] = {
		{ "", CA_EXPANDABLE_OFF },
		{ "expandable_segments:False", CA_EXPANDABLE_OFF },
		{ "expandable_segments:0", CA_EXPANDABLE_OFF },
		{ "expandable_segments:True", CA_EXPANDABLE_ON },
		{ "expandable_segments:on", CA_EXPANDABLE_ON },
		{ "expandable_segments:auto", CA_EXPANDABLE_AUTO },
	};
	struct ca_config config;
	struct fake_env env;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		fake_good(&env, rows[i].conf);
		assert_int_equal(fake_load(&env, &config), 0);
		assert_int_equal(config.expandable_segments, rows[i].is);
	}
	fake_good(&env, "expandable_segments:2");
	assert_int_equal(fake_load(&env, &config), 1);
}

static void
test_a_take_over_brings_async_with_it_unless_the_user_says_otherwise(void **state)
{
	struct ca_config config;
	struct fake_env env = { 0 };

	assert_int_equal(fake_load(&env, &config), 0);
	assert_int_equal(config.async, CA_ASYNC_DRIVER);
	fake_set(&env, "CACHEALLOC_TAKEOVER", "tensorflow");
	assert_int_equal(fake_load(&env, &config), 0);
	assert_int_equal(config.take_over, CA_TAKE_TENSORFLOW);
	assert_int_equal(config.async, CA_ASYNC_KEEP);
	fake_set(&env, "CACHEALLOC_TAKEOVER", "cudf,torch");
	assert_int_equal(fake_load(&env, &config), 0);
	assert_int_equal(config.async, CA_ASYNC_POOL);
	fake_set(&env, "CACHEALLOC_TAKEOVER", "off");
	assert_int_equal(fake_load(&env, &config), 0);
	assert_int_equal(config.take_over, 0);
	assert_int_equal(config.async, CA_ASYNC_DRIVER);
	fake_set(&env, "CACHEALLOC_TAKEOVER", "torch,jax");
	fake_set(&env, "CACHEALLOC_CONF", "async:driver");
	assert_int_equal(fake_load(&env, &config), 0);
	assert_int_equal(config.async, CA_ASYNC_DRIVER);
	fake_set(&env, "CACHEALLOC_TAKEOVER", NULL);
	fake_set(&env, "CACHEALLOC_CONF", "async:keep");
	assert_int_equal(fake_load(&env, &config), 0);
	assert_int_equal(config.async, CA_ASYNC_KEEP);
}

/* PyTorch's variable, under a take-over of it only; CACHEALLOC_CONF first, key by key. */
static void
test_keys_of_pytorchs_variable(void **state)
{
	struct ca_config config, defaults;
	struct fake_env env = { 0 };

	ca_config_default(&defaults);
	fake_set(&env, CA_TORCH_CONF,
		 "max_split_size_mb:64, garbage_collection_threshold:0.8,expandable_segments:True,"
		 "max_non_split_rounding_mb:40,roundup_power2_divisions:[256:1,>:4],nonsense:1,x,"
		 "large_segment_size_mb:40,backend:native");
	assert_int_equal(fake_load(&env, &config), 0);
	assert_memory_equal(&config, &defaults, sizeof(config));
	fake_set(&env, "CACHEALLOC_TAKEOVER", "jax");
	assert_int_equal(fake_load(&env, &config), 0);
	assert_true(config.max_split_size_bytes == UINT64_MAX);
	fake_set(&env, "CACHEALLOC_TAKEOVER", "jax,torch");
	assert_int_equal(fake_load(&env, &config), 0);
	assert_int_equal(config.max_split_size_bytes, 64 * MIB);
	assert_int_equal(config.gc_threshold, 800000000);
	assert_int_equal(config.roundup.count, 2);
	assert_int_equal(config.max_non_split_rounding_bytes, 20 * MIB);
	assert_int_equal(config.large_segment_size_bytes, 20 * MIB);
	fake_set(&env, "CACHEALLOC_CONF", "max_split_size_mb:100");
	assert_int_equal(fake_load(&env, &config), 0);
	assert_int_equal(config.max_split_size_bytes, 100 * MIB);
	assert_int_equal(config.gc_threshold, 800000000);
	/* the newer variable counts only where the older is not set at all */
	fake_set(&env, CA_TORCH_CONF_NEW, "garbage_collection_threshold:0.5");
	fake_set(&env, CA_TORCH_CONF, "");
	assert_int_equal(fake_load(&env, &config), 0);
	assert_int_equal(config.gc_threshold, 0);
	fake_set(&env, CA_TORCH_CONF, NULL);
	assert_int_equal(fake_load(&env, &config), 0);
	assert_int_equal(config.gc_threshold, 500000000);
	fake_set(&env, CA_TORCH_CONF_NEW, "garbage_collection_threshold:7");
	assert_int_equal(fake_load(&env, &config), 1);
	assert_string_equal(env.line[0], "CACHEALLOC_TAKEOVER: in PYTORCH_ALLOC_CONF "
					 "'garbage_collection_threshold:7' is ignored: expected a "
					 "number between 0 and 1, such as 0.8");
	assert_int_equal(config.gc_threshold, 0);
	/* the rule between two keys holds across the two variables */
	fake_set(&env, CA_TORCH_CONF_NEW, "max_split_size_mb:20");
	fake_set(&env, "CACHEALLOC_CONF", "large_segment_size_mb:64");
	assert_int_equal(fake_load(&env, &config), 1);
	assert_true(config.max_split_size_bytes == UINT64_MAX);
}

static void
test_duplicates(void **state)
{
	struct fake_env env = { 0 };
	struct ca_config config;

	fake_set(&env, "CACHEALLOC_CONF", "reuse_slack_mb:5,reuse_slack_mb:6,reuse_slack_mb:7");
	assert_int_equal(fake_load(&env, &config), 2);
	assert_int_equal(config.reuse_slack_bytes, 7 * MIB);
	/* the last *accepted* one wins; a bad one has its own line and no second one */
	fake_set(&env, "CACHEALLOC_CONF", "reuse_slack_mb:5,reuse_slack_mb:x");
	assert_int_equal(fake_load(&env, &config), 1);
	assert_int_equal(config.reuse_slack_bytes, 5 * MIB);
	fake_set(&env, "CACHEALLOC_CONF", "reuse_slack_mb:x,reuse_slack_mb:5");
	assert_int_equal(fake_load(&env, &config), 1);
	assert_int_equal(config.reuse_slack_bytes, 5 * MIB);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_window_of_sizes_that_nothing_is_in_is_refused),
		cmocka_unit_test(test_defaults),
		cmocka_unit_test(test_all_set),
		cmocka_unit_test(test_stats_forms),
		cmocka_unit_test(test_segment_size_moves_rounding),
		cmocka_unit_test(test_cross_rule),
		cmocka_unit_test(test_strict_is_read_first),
		cmocka_unit_test(test_duplicates),
		cmocka_unit_test(test_expandable_segments_is_a_flag_or_auto),
		cmocka_unit_test(
			test_a_take_over_brings_async_with_it_unless_the_user_says_otherwise),
		cmocka_unit_test(test_keys_of_pytorchs_variable),
	};

	return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
