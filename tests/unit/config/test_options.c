/* SPDX-License-Identifier: MIT */
/* config/options.c and the table itself. */
#include "config/options.h"

#include <string.h>

#include "tests/unit/config/check.h"

enum { NAMES_BYTES = 4096 };

/* Names of one kind and status, in the table's order, separated by blanks. */
static const char *
names(char *ret, bool is_key, enum ca_option_status status)
{
	ret[0] = '\0';
	for (size_t i = 0; i < ca_options_count; i++) {
		if (ca_options[i].is_key == is_key && ca_options[i].status == status) {
			check_append(ret, NAMES_BYTES, *ret ? " " : "");
			check_append(ret, NAMES_BYTES, ca_options[i].name);
		}
	}
	return ret;
}

/* What a user can and cannot expect of this version; building one of them moves its name. */
static void
test_sets(void **state)
{
	char text[NAMES_BYTES];

	assert_string_equal(
		names(text, false, CA_STATUS_BUILT),
		"STRICT DISABLE CONF LOG LOG_FILE STATS STATS_INTERVAL LIMIT TRACE SNAPSHOT "
		"SNAPSHOT_ON TAKEOVER");
	assert_string_equal(names(text, false, CA_STATUS_LATER), "");
	assert_string_equal(names(text, false, CA_STATUS_OURS), "BUILD TEST_* TRACES");
	assert_string_equal(
		names(text, true, CA_STATUS_BUILT),
		"large_segment_size_mb max_split_size_mb max_non_split_rounding_mb "
		"reuse_slack_mb reuse free_sync under_framework async pinned pinned_max_mb "
		"min_size max_size "
		"give_back roundup_power2_divisions garbage_collection_threshold "
		"expandable_segments expandable_slack_percent per_process_memory_fraction "
		"max_cached_mb min_reserve_mb trim_idle_ms "
		"trim_every zero poison oom_retry_ms oom_fallback");
	assert_string_equal(names(text, true, CA_STATUS_LATER), "background_thread");
	assert_string_equal(
		names(text, true, CA_STATUS_FOREIGN),
		"backend expandable_segments_reserve expandable_segments_reserve_by_class "
		"throw_on_cudamalloc_oom release_lock_on_cudamalloc release_lock_on_hipmalloc "
		"graph_capture_record_stream_reuse pinned_use_cuda_host_register "
		"pinned_use_hip_host_register pinned_num_register_threads "
		"pinned_use_background_threads pinned_reserve_segment_size_mb "
		"pinned_free_catch_all");
}

static void
test_rows_are_sane(void **state)
{
	for (size_t i = 0; i < ca_options_count; i++) {
		const struct ca_option *option = &ca_options[i];

		assert_true(strlen(option->name) < CA_OPTION_NAME_MAX);
		assert_ptr_equal(ca_option_find(option->is_key, option->name), option);
		assert_true(option->min <= option->max);
		if (option->status == CA_STATUS_BUILT)
			assert_true(*option->accepted && option->type != CA_TYPE_ANY);
		else
			assert_int_equal(option->type, CA_TYPE_ANY);
	}
}

static void
test_find(void **state)
{
	assert_null(ca_option_find(true, "LOG"));
	assert_null(ca_option_find(false, "zero"));
	assert_null(ca_option_find(true, ""));
	assert_null(ca_option_find(true, "Zero"));
	assert_non_null(ca_option_find(false, "TEST_ANYTHING"));
	assert_null(ca_option_find(false, "TEST"));
	assert_null(ca_option_find(false, "BUILDS"));
}

static void
test_nearest(void **state)
{
	static const struct {
		bool is_key;
		const char *typo, *meant; /* NULL: nothing is near */
	} rows[] = {
		{ true, "max_splt_size_mb", "max_split_size_mb" },
		{ true, "max_split_size", "max_split_size_mb" },
		{ true, "max_split", "max_split_size_mb" },
		{ true, "MAX_SPLIT_SIZE_MB", "max_split_size_mb" },
		{ true, "max_spilt_size_mb", "max_split_size_mb" },
		{ true, "max_non_split_rounding", "max_non_split_rounding_mb" },
		{ true, "reuse_slak_mb", "reuse_slack_mb" },
		{ true, "reuse_slack", "reuse_slack_mb" },
		{ true, "large_segment_size", "large_segment_size_mb" },
		{ true, "expandable_segment", "expandable_segments" },
		{ true, "qwertyuiop", NULL },
		{ true, "", NULL },
		{ true, "x", NULL },
		{ false, "STAT", "STATS" },
		{ false, "LOGFILE", "LOG_FILE" },
		{ false, "LGO", "LOG" },
		{ false, "DISABLED", "DISABLE" },
		{ false, "SRTICT", "STRICT" },
		{ false, "CONFIG", "CONF" },
		{ false, "stats_interval", "STATS_INTERVAL" },
		{ false, "NOTHING_LIKE_IT", NULL },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct ca_option *near = ca_option_nearest(rows[i].is_key, rows[i].typo);

		if (rows[i].meant) {
			assert_non_null(near);
			assert_string_equal(near->name, rows[i].meant);
		} else {
			assert_null(near);
		}
	}
}

/* Longest and odd names stay inside the tables. */
static void
test_nearest_random(void **state)
{
	uint64_t seed = check_seed("options");
	char name[200];

	for (int round = 0; round < 3000; round++) {
		size_t length = check_random(&seed) % sizeof(name);

		for (size_t i = 0; i < length; i++)
			name[i] = (char)(1 + check_random(&seed) % 255);
		name[length] = '\0';
		ca_option_nearest(round % 2, name);
		ca_option_find(round % 2, name);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sets),           cmocka_unit_test(test_rows_are_sane),
		cmocka_unit_test(test_find),           cmocka_unit_test(test_nearest),
		cmocka_unit_test(test_nearest_random),
	};

	return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
