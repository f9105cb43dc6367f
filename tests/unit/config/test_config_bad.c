/* SPDX-License-Identifier: MIT */
/* config/config.c: a bad setting costs one line and nothing else. */
#include "config/config.h"

#include "config/options.h"
#include "config/parse.h"
#include "tests/unit/config/check.h"
#include "tests/unit/config/fake_env.h"

static const uint64_t MIB = 1 << 20;

struct bad_row {
	const char *variable; /* NULL: CACHEALLOC_CONF, between two good keys */
	const char *value;
	const char *in_line; /* the line holds this; NULL: the value in quotes */
};

static const struct bad_row bad_rows[] = {
	/* grammar */
	{ NULL, "", "an empty setting" },
	{ NULL, " \t", "an empty setting" },
	{ NULL, "max_split_size_mb", "no colon" },
	{ NULL, "max_split_size_mb=40", "no colon" },
	{ NULL, "max_split_size_mb 40", "no colon" },
	{ NULL, "max_split_size_mb;40", "no colon" },
	{ NULL, "max_split_size_mb:", "no value" },
	{ NULL, "max_split_size_mb: ", "no value" },
	{ NULL, ":40", "no key" },
	{ NULL, ":", "no key" },
	{ NULL, "max_split_size_mb:[40", "a [ without ]" },
	{ NULL, "max_split_size_mb:[40,41:2,x", "a [ without ]" },
	{ NULL, "[max_split_size_mb:40]", "no colon" },
	/* values */
	{ NULL, "max_split_size_mb:[40]", "'[40]'" },
	{ NULL, "max_split_size_mb:40]", "'40]'" },
	{ NULL, "max_split_size_mb::40", "':40'" },
	{ NULL, "max_split_size_mb:40:41", "'40:41'" },
	{ NULL, "max_split_size_mb:abc",
	  "max_split_size_mb: 'abc' is refused: expected a whole number of MiB" },
	{ NULL, "max_split_size_mb:40x", "'40x'" },
	{ NULL, "max_split_size_mb:40MB", "'40MB'" },
	{ NULL, "max_split_size_mb:0x40", "'0x40'" },
	{ NULL, "max_split_size_mb:40.0", "'40.0'" },
	{ NULL, "max_split_size_mb:4e1", "'4e1'" },
	{ NULL, "max_split_size_mb:-40", "'-40'" },
	{ NULL, "max_split_size_mb:+40", "'+40'" },
	{ NULL, "max_split_size_mb:0", "'0'" },
	{ NULL, "max_split_size_mb:19", "at least large_segment_size_mb (32)" },
	{ NULL, "max_split_size_mb:31", "at least large_segment_size_mb (32)" },
	{ NULL, "max_split_size_mb:18446744073709551616", "'18446744073709551616'" },
	{ NULL, "max_split_size_mb:17592186044416", "'17592186044416'" },
	{ NULL, "max_split_size_mb:99999999999999999999999999999999", NULL },
	{ NULL, "max_split_size_mb:True", "'True'" },
	{ NULL, "max_split_size_mb:\x1b[31m40", "\\x1b" },
	{ NULL, "max_split_size_mb:\xff\xfe", "\\xff\\xfe" },
	{ NULL, "max_non_split_rounding_mb:1", "'1'" },
	{ NULL, "max_non_split_rounding_mb:31", "at least large_segment_size_mb (32)" },
	{ NULL, "max_non_split_rounding_mb:unlimited", "'unlimited'" },
	{ NULL, "reuse:order", "'order' is refused: expected ordered or finished" },
	{ NULL, "free_sync:1", "'1' is refused: expected event or host" },
	/* keys */
	{ NULL, "max_splt_size_mb:40",
	  "'max_splt_size_mb' (value '40') is refused: did you mean max_split_size_mb?" },
	{ NULL, "max_split_size:40", "did you mean max_split_size_mb?" },
	{ NULL, "MAX_SPLIT_SIZE_MB:40", "did you mean max_split_size_mb?" },
	{ NULL, "colour:blue", "expected one of large_segment_size_mb, max_split_size_mb" },
	{ NULL, "\x07\x07:1", "\\x07\\x07" },
	{ NULL, "reuse_slack_mb:7", "more than once: the last one, '7', is refused" },
	{ NULL, "background_thread:True", "background_thread is refused: not in this version" },
	{ NULL, "garbage_collection_threshold:1", "'1' is refused: expected a number between 0" },
	{ NULL, "garbage_collection_threshold:0", "expected a number between 0 and 1" },
	{ NULL, "per_process_memory_fraction:1.5", "above 0 and at most 1" },
	{ NULL, "roundup_power2_divisions:[256:1,512:2", "(a [ without ])" },
	{ NULL, "roundup_power2_divisions:[256:1,512:3]", "(divisions that are no power of two)" },
	{ NULL, "roundup_power2_divisions:[512:1,256:2]", "(the sizes do not ascend, > last)" },
	{ NULL, "roundup_power2_divisions:6",
	  "'6' is refused (no power of two): expected a power" },
	{ NULL, "max_cached_mb:1.5", "expected a whole number of MiB, or unlimited" },
	{ NULL, "trim_idle_ms:10s", "expected a whole number of ms" },
	{ NULL, "trim_every:-1", "expected a whole number of allocations" },
	{ NULL, "zero:maybe", "expected True or False" },
	{ NULL, "oom_retry_ms:3600001", "at most 3600000" },
	{ NULL, "oom_fallback:host", "expected none or managed" },
	{ NULL, "background_thread", "not in this version" },
	{ NULL, "background_thread:1,background_thread:1", "not in this version" },
	{ NULL, "backend:cudaMallocAsync", "does not apply here" },
	{ NULL, "pinned_num_register_threads:8", "does not apply here" },
	{ NULL, "release_lock_on_cudamalloc:True", "does not apply here" },
	/* variables */
	{ "CACHEALLOC_STRICT", "2", NULL },
	{ "CACHEALLOC_STRICT", "maybe", NULL },
	{ "CACHEALLOC_STRICT", " 1", NULL },
	{ "CACHEALLOC_DISABLE", "all", NULL },
	{ "CACHEALLOC_DISABLE", "-1", NULL },
	{ "CACHEALLOC_DISABLE", "counts", "'counts' is refused: expected 1, 0 or count" },
	{ "CACHEALLOC_LOG", "verbose",
	  "'verbose' is refused: expected off, error, warn, info or debug" },
	{ "CACHEALLOC_LOG", "1", NULL },
	{ "CACHEALLOC_LOG", "info,debug", NULL },
	{ "CACHEALLOC_LOG_FILE", "log.%q", "none of %p" },
	{ "CACHEALLOC_LOG_FILE", "log.%", "none of %p" },
	{ "CACHEALLOC_LOG_FILE", "logs/", NULL },
	{ "CACHEALLOC_LOG_FILE", "/dev/stderr", "below /dev" },
	{ "CACHEALLOC_STATS", "2", NULL },
	{ "CACHEALLOC_STATS", "%z.json", NULL },
	{ "CACHEALLOC_STATS", "/proc/self/mem", NULL },
	{ "CACHEALLOC_STATS", "json", "as ./name has): expected 1, 0 or a file pattern" },
	{ "CACHEALLOC_TRACE", "1", "as ./name has): expected a file pattern" },
	{ "CACHEALLOC_TRACE", "%z", "none of %p" },
	{ "CACHEALLOC_TRACE", "/dev/null", "below /dev" },
	{ "CACHEALLOC_STATS_INTERVAL", "10", "'10' is refused: expected a duration such as 500ms" },
	{ "CACHEALLOC_STATS_INTERVAL", "10 s", NULL },
	{ "CACHEALLOC_STATS_INTERVAL", "-10s", NULL },
	{ "CACHEALLOC_STATS_INTERVAL", "1.5s", NULL },
	{ "CACHEALLOC_STATS_INTERVAL", "1ms", NULL },
	{ "CACHEALLOC_STATS_INTERVAL", "99999999999999999999s", NULL },
	{ "CACHEALLOC_LIMIT", "8X", "'8X' is refused: expected a size such as 8G" },
	{ "CACHEALLOC_LIMIT", "110%", "or a share of the device such as 90%" },
	{ "CACHEALLOC_SNAPSHOT", "1", "as ./name has): expected a file pattern" },
	{ "CACHEALLOC_SNAPSHOT_ON", "exit,signal",
	  "'exit,signal' is refused: expected off, or a list of exit, oom, peak, usr1, usr2" },
	{ "CACHEALLOC_TAKEOVER", "auto",
	  "'auto' is refused: expected off, or a list of torch, jax, tensorflow, cudf" },
	{ "CACHEALLOC_TAKEOVER", "torch,", NULL },
	{ "CACHEALLOC_TAKEOVER", "torch,off", NULL },
	{ "CACHEALLOC_TAKEOVER", "torch jax", NULL },
	{ "CACHEALLOC_TAKEOVER", "1", NULL },
	{ NULL, "pinned:keep", "'keep' is refused: expected driver or cache" },
	{ NULL, "pinned_max_mb:0", NULL },
	{ NULL, "async:cache", "'cache' is refused: expected driver, keep or pool" },
};

/* Every line is one line, printable, of bounded length, and names its variable. */
static void
assert_lines_tidy(const struct fake_env *env, int bad)
{
	assert_int_equal(env->lines, bad > CA_CONFIG_REPORT_MAX ? CA_CONFIG_REPORT_MAX + 1 : bad);
	for (int i = 0; i < env->lines && i < FAKE_LINES; i++) {
		assert_int_equal(strncmp(env->line[i], "CACHEALLOC_", 11), 0);
		assert_true(strlen(env->line[i]) < 650); /* all keys are named */
		for (const char *at = env->line[i]; *at; at++)
			assert_true(*at >= 0x20 && *at < 0x7f);
	}
}

static bool
same_bytes(const void *a, const void *b, size_t size)
{
	return memcmp(a, b, size) == 0;
}

static void
check_bad_row(const struct bad_row *row)
{
	const char *variable = row->variable ? row->variable : "CACHEALLOC_CONF";
	struct ca_config config, expected;
	struct fake_env env;
	char conf[512], quoted[256];

	fake_good(&env, "reuse_slack_mb:7,large_segment_size_mb:32");
	if (row->variable)
		fake_set(&env, row->variable, NULL);
	assert_int_equal(fake_load(&env, &expected), 0);
	snprintf(conf, sizeof(conf), "reuse_slack_mb:7,%s,large_segment_size_mb:32", row->value);
	fake_set(&env, variable, row->variable ? row->value : conf);
	if (fake_load(&env, &config) != 1 || env.lines != 1)
		fail_msg("%s=%s: %d lines, the first: %s", variable, row->value, env.lines,
			 env.line[0]);
	snprintf(quoted, sizeof(quoted), "'%s'",
		 strchr(row->value, ':') ? strchr(row->value, ':') + 1 : row->value);
	if (!strstr(env.line[0], variable) ||
	    !strstr(env.line[0], row->in_line ? row->in_line : quoted))
		fail_msg("%s=%s: %s", variable, row->value, env.line[0]);
	if (!same_bytes(&config, &expected, sizeof(config)))
		fail_msg("%s=%s: another setting was changed", variable, row->value);
	assert_lines_tidy(&env, 1);
}

static void
test_bad_settings(void **state)
{
	size_t count = sizeof(bad_rows) / sizeof(bad_rows[0]);

	assert_true(count >= 40);
	for (size_t i = 0; i < count; i++)
		check_bad_row(&bad_rows[i]);
}

static void
append_setting(char *conf, size_t size, const char *setting)
{
	check_append(conf, size, ",");
	check_append(conf, size, setting);
}

/* All of them at once: as many lines as bad settings, and the good ones still stand. */
static void
test_bad_settings_together(void **state)
{
	char conf[8192] = "reuse_slack_mb:8,max_split_size_mb:40";
	struct ca_config config;
	struct fake_env env = { 0 };
	int bad;

	for (size_t i = 0; i < sizeof(bad_rows) / sizeof(bad_rows[0]); i++)
		if (!bad_rows[i].variable)
			append_setting(conf, sizeof(conf), bad_rows[i].value);
	append_setting(conf, sizeof(conf), "large_segment_size_mb:32");
	fake_set(&env, "CACHEALLOC_CONF", conf);
	bad = fake_load(&env, &config);
	assert_true(bad > 30);
	assert_lines_tidy(&env, bad);
	assert_int_equal(config.large_segment_size_bytes, 32 * MIB);
	assert_int_equal(config.reuse_slack_bytes, 7 * MIB);
}

/* Each setting that is known but not built says so, once, however often it is given. */
static void
test_not_in_this_version(void **state)
{
	for (size_t i = 0; i < ca_options_count; i++) {
		const struct ca_option *option = &ca_options[i];
		struct fake_env env = { 0 };
		struct ca_config config;
		char name[128], conf[256];

		if (option->status != CA_STATUS_LATER && option->status != CA_STATUS_FOREIGN)
			continue;
		snprintf(name, sizeof(name), "CACHEALLOC_%s", option->name);
		snprintf(conf, sizeof(conf), "%s:1,%s:2", option->name, option->name);
		fake_set(&env, option->is_key ? "CACHEALLOC_CONF" : name, conf);
		assert_int_equal(fake_load(&env, &config), 1);
		assert_non_null(strstr(env.line[0], option->name));
		assert_non_null(strstr(env.line[0], option->status == CA_STATUS_LATER
							    ? "not in this version"
							    : "does not apply here"));
	}
}

static void
test_unknown_variables(void **state)
{
	static char long_name[128];
	char *const names[] = { "PATH=/bin",
				"CACHEALLOC=1",
				"CACHEALLOCX_LOG=1",
				"CACHEALLOC_LOG=info",
				"CACHEALLOC_BUILD=b",
				"CACHEALLOC_TEST_SEED=1",
				"CACHEALLOC_TRACES=t",
				"CACHEALLOC_STAT=1",
				"CACHEALLOC_\nX\x1b=1",
				"CACHEALLOC_=1",
				"CACHEALLOC_QWERTYUIOP",
				long_name,
				NULL };
	struct fake_env env = { .environ_names = names };
	struct ca_config config;

	memset(long_name, 'L', sizeof(long_name) - 1);
	memcpy(long_name, "CACHEALLOC_", 11);
	assert_int_equal(fake_load(&env, &config), 5);
	assert_lines_tidy(&env, 5);
	assert_string_equal(
		env.line[0],
		"CACHEALLOC_STAT: unknown variable is ignored: did you mean CACHEALLOC_STATS?");
	assert_string_equal(
		env.line[3],
		"CACHEALLOC_QWERTYUIOP: unknown variable is ignored: expected CACHEALLOC_ "
		"and one of STRICT, DISABLE, CONF, LOG, LOG_FILE, STATS, "
		"STATS_INTERVAL, LIMIT, TRACE, SNAPSHOT, SNAPSHOT_ON, TAKEOVER");
}

static void
test_long_values(void **state)
{
	struct fake_env env = { 0 };
	struct ca_config config;
	char *text = malloc(100001);

	memset(text, 'x', 100000);
	text[100000] = '\0';
	fake_set(&env, "CACHEALLOC_LOG", text);
	fake_set(&env, "CACHEALLOC_CONF", text);
	fake_set(&env, "CACHEALLOC_STATS", text);
	assert_int_equal(fake_load(&env, &config), 3);
	assert_lines_tidy(&env, 3);
	for (int i = 0; i < 3; i++)
		assert_non_null(strstr(env.line[i], "xxx...'"));
	free(text);
}

static void
test_many_bad_settings(void **state)
{
	struct fake_env env = { 0 };
	struct ca_config config;
	char text[1024] = "";

	for (size_t i = 0; i < 500; i++)
		check_append(text, sizeof(text), "a,");
	check_append(text, sizeof(text), "reuse_slack_mb:9");
	fake_set(&env, "CACHEALLOC_CONF", text);
	assert_int_equal(fake_load(&env, &config), 500);
	assert_lines_tidy(&env, 500);
	assert_string_equal(env.line[CA_CONFIG_REPORT_MAX],
			    "CACHEALLOC_*: 436 more bad settings are ignored and not shown");
	assert_int_equal(config.reuse_slack_bytes, 9 * MIB);
	/* and without anybody listening */
	assert_int_equal(ca_config_load(&config, fake_get, &env, NULL, NULL, NULL), 500);
}

/* Whatever stands in the environment, the result keeps the rules that the allocator relies on. */
static void
assert_config_valid(const struct ca_config *config)
{
	assert_true(config->large_segment_size_bytes > 10 * MIB);
	assert_true(config->max_split_size_bytes >= config->large_segment_size_bytes);
	assert_true(config->max_non_split_rounding_bytes >= config->large_segment_size_bytes);
	assert_in_range(config->disable, CA_DISABLE_OFF, CA_DISABLE_COUNT);
	assert_in_range(config->log_level, CA_LOG_OFF, CA_LOG_DEBUG);
	assert_false(config->stats_stderr && config->stats_file[0]);
	assert_true(!config->log_file[0] || !ca_path_check(config->log_file));
	assert_true(!config->stats_file[0] || !ca_path_check(config->stats_file));
}

/* Garbage made of pieces that mean something, cut and glued. */
static void
random_text(uint64_t *seed, char *ret, size_t size)
{
	static const char *const pieces[] = { "max_split_size_mb",
					      "large_segment_size_mb",
					      "reuse_slack_mb",
					      "max_non_split_rounding_mb",
					      "zero",
					      "backend",
					      ":",
					      ",",
					      "[",
					      "]",
					      " ",
					      "20",
					      "64",
					      "18446744073709551616",
					      "unlimited",
					      "-",
					      "%",
					      "%p",
					      "/",
					      "\n",
					      "\x80",
					      "True",
					      "count",
					      "10s",
					      "m",
					      "x",
					      "=",
					      "1" };
	size_t length = 0, want = check_random(seed) % size;

	while (length < want) {
		const char *piece =
			pieces[check_random(seed) % (sizeof(pieces) / sizeof(pieces[0]))];
		char byte[2] = { (char)(1 + check_random(seed) % 255), '\0' };
		size_t n;

		if (check_random(seed) % 16 == 0)
			piece = byte;
		n = strlen(piece);
		if (length + n >= size)
			break;
		memcpy(ret + length, piece, n);
		length += n;
	}
	ret[length] = '\0';
}

static void
test_random(void **state)
{
	static const char *const names[] = { "CACHEALLOC_CONF",     "CACHEALLOC_LOG",
					     "CACHEALLOC_STATS",    "CACHEALLOC_LIMIT",
					     "CACHEALLOC_LOG_FILE", "CACHEALLOC_STATS_INTERVAL" };
	static char text[6][CA_CONF_TEXT_MAX + 64], extra[300] = "CACHEALLOC_";
	static struct fake_env env;
	uint64_t seed = check_seed("config");

	for (int round = 0; round < 4000; round++) {
		char *const environ_names[] = { extra, NULL };
		size_t size = round % 100 ? 200 : sizeof(text[0]); /* a long one now and then */
		struct ca_config config;

		env.environ_names = environ_names;
		for (int i = 0; i < 6; i++) {
			random_text(&seed, text[i], size);
			fake_set(&env, names[i], text[i]);
		}
		random_text(&seed, extra + 11, sizeof(extra) - 11);
		assert_lines_tidy(&env, fake_load(&env, &config));
		assert_config_valid(&config);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bad_settings),
		cmocka_unit_test(test_bad_settings_together),
		cmocka_unit_test(test_not_in_this_version),
		cmocka_unit_test(test_unknown_variables),
		cmocka_unit_test(test_long_values),
		cmocka_unit_test(test_many_bad_settings),
		cmocka_unit_test(test_random),
	};

	return cmocka_run_group_tests_name("config_bad", tests, NULL, NULL);
}
