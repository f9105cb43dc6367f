/* SPDX-License-Identifier: MIT */
/* config/confirm.c: what is confirmed is what was set, in a form that can be set again. */
#include "tests/unit/config/check.h"
#include "tests/unit/config/fake_env.h"

static void
confirm(struct fake_env *env, const struct ca_config *config)
{
	env->lines = 0;
	ca_config_confirm(config, fake_report, env);
}

static void
test_silent_on_defaults(void **state)
{
	struct fake_env env = { 0 };
	struct ca_config config;

	ca_config_default(&config);
	confirm(&env, &config);
	assert_int_equal(env.lines, 0);
}

static void
test_every_setting(void **state)
{
	static const char *const lines[] = {
		"CACHEALLOC_STRICT=1",
		"CACHEALLOC_DISABLE=count",
		"CACHEALLOC_LOG=debug",
		"CACHEALLOC_LOG_FILE=log.%p",
		"CACHEALLOC_STATS=stats.%p.json",
		"CACHEALLOC_STATS_INTERVAL=10s",
		"CACHEALLOC_LIMIT=1536M",
		"CACHEALLOC_SNAPSHOT=a.%n.pickle",
		"CACHEALLOC_SNAPSHOT_ON=oom,usr1",
		"CACHEALLOC_TAKEOVER=torch,tensorflow",
		"CACHEALLOC_CONF=large_segment_size_mb:32",
		"CACHEALLOC_CONF=max_split_size_mb:40",
		"CACHEALLOC_CONF=max_non_split_rounding_mb:50",
		"CACHEALLOC_CONF=reuse_slack_mb:unlimited",
		"CACHEALLOC_CONF=reuse:finished",
		"CACHEALLOC_CONF=free_sync:host",
		"CACHEALLOC_CONF=under_framework:cache",
		"CACHEALLOC_CONF=async:pool",
		"CACHEALLOC_CONF=min_size:64K",
		"CACHEALLOC_CONF=max_size:1048577",
		"CACHEALLOC_CONF=roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
		"CACHEALLOC_CONF=garbage_collection_threshold:0.8",
		"CACHEALLOC_CONF=per_process_memory_fraction:0.123456789",
		"CACHEALLOC_CONF=max_cached_mb:0",
		"CACHEALLOC_CONF=min_reserve_mb:64",
		"CACHEALLOC_CONF=trim_idle_ms:500",
		"CACHEALLOC_CONF=trim_every:1000",
		"CACHEALLOC_CONF=zero:1",
		"CACHEALLOC_CONF=poison:1",
		"CACHEALLOC_CONF=oom_retry_ms:20",
		"CACHEALLOC_CONF=oom_fallback:managed",
	};
	struct fake_env env;
	struct ca_config config;

	fake_good(&env, "reuse_slack_mb:unlimited,max_split_size_mb:40,large_segment_size_mb:32,"
			"max_non_split_rounding_mb:50,reuse:finished,free_sync:host,"
			"under_framework:cache,min_size:65536,max_size:1048577,"
			"roundup_power2_divisions:[256:1,512:2,1024:4,>:8],"
			"garbage_collection_threshold:0.80,"
			"per_process_memory_fraction:0.123456789,max_cached_mb:0,"
			"min_reserve_mb:64,trim_idle_ms:500,trim_every:1000,zero:True,"
			"poison:yes,oom_retry_ms:20,oom_fallback:managed");
	fake_set(&env, "CACHEALLOC_LIMIT", "1.5G");
	fake_set(&env, "CACHEALLOC_SNAPSHOT", "a.%n.pickle");
	fake_set(&env, "CACHEALLOC_SNAPSHOT_ON", "USR1, oom");
	fake_set(&env, "CACHEALLOC_TAKEOVER", "Tensorflow, torch");
	assert_int_equal(fake_load(&env, &config), 0);
	confirm(&env, &config);
	assert_int_equal(env.lines, 31);
	for (int i = 0; i < 31; i++)
		assert_string_equal(env.line[i], lines[i]);
}

/* The confirmed lines as an environment; all keys in one variable. */
static void
join(struct fake_env *env, struct fake_env *ret_again)
{
	static char conf[4096];

	conf[0] = '\0';
	for (int line = 0; line < env->lines; line++) {
		char *equals = strchr(env->line[line], '=');

		*equals = '\0';
		if (strcmp(env->line[line], "CACHEALLOC_CONF") != 0) {
			fake_set(ret_again, env->line[line], equals + 1);
			continue;
		}
		check_append(conf, sizeof(conf), *conf ? "," : "");
		check_append(conf, sizeof(conf), equals + 1);
		fake_set(ret_again, "CACHEALLOC_CONF", conf);
	}
}

/* Loading what was confirmed gives the same struct. */
static void
test_round_trip(void **state)
{
	static const char *const intervals[] = { "10ms", "999ms", "1500ms", "2m", "24h" };
	static const char *const stats[] = { "1", "file\x01.txt", "s.json" };
	static const char *const disable[] = { "1", "count", "0" };
	static struct fake_env env, again;
	struct ca_config config, second;
	char conf[128];

	static const char *const limits[] = { "90%", "62.5%", "8G", "1.5GiB", "1000", "0.000001%" };
	static const char *const keys[] = {
		"roundup_power2_divisions:8",
		"roundup_power2_divisions:[1:0,>:4]",
		"roundup_power2_divisions:[>:2],per_process_memory_fraction:1",
		"per_process_memory_fraction:0.5",
	};
	static const char *const async[] = { "async:keep", "async:driver", "zero:0" };

	for (size_t i = 0; i < 45; i++) {
		memset(&env, 0, sizeof(env));
		memset(&again, 0, sizeof(again));
		fake_set(&env, "CACHEALLOC_STATS_INTERVAL", intervals[i % 5]);
		fake_set(&env, "CACHEALLOC_STATS", stats[i % 3]);
		fake_set(&env, "CACHEALLOC_DISABLE", disable[i / 15]);
		fake_set(&env, "CACHEALLOC_LIMIT", limits[i % 6]);
		snprintf(conf, sizeof(conf), "%s,%s", keys[i % 4], async[i % 3]);
		fake_set(&env, "CACHEALLOC_CONF", conf);
		fake_set(&env, "CACHEALLOC_TAKEOVER", i % 5 ? "torch,cudf" : "off");
		fake_set(&env, CA_TORCH_CONF, "max_split_size_mb:77");
		assert_int_equal(fake_load(&env, &config), 0);
		confirm(&env, &config);
		join(&env, &again);
		assert_int_equal(fake_load(&again, &second), 0);
		if (i % 3 != 1) /* a control character is shown escaped */
			assert_memory_equal(&config, &second, sizeof(config));
		else
			assert_string_equal(second.stats_file, "file\\x01.txt");
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_silent_on_defaults),
		cmocka_unit_test(test_every_setting),
		cmocka_unit_test(test_round_trip),
	};

	return cmocka_run_group_tests_name("confirm", tests, NULL, NULL);
}
