/* SPDX-License-Identifier: MIT */
/* Timelines: of what was recorded, with a beginning that is not recorded, and of a replay. */
#include "allocator/replay/timeline.h"
#include "tests/unit/replay/fixture.h"

enum { ROWS_MAX = 64, BASE = 0x1000000, SEGMENT = 1 << 20 };

struct read_back {
	char head[4096];
	uint8_t kind[ROWS_MAX];
	uint32_t arg[ROWS_MAX];
	uint64_t waiting[ROWS_MAX], time_ns[ROWS_MAX];
	size_t n;
};

static struct read_back
read_back(struct ca_timeline *timeline, const struct ca_replay_input *input)
{
	static const char kinds[] = "[\"kind\",\"u8\",";
	struct read_back back = { .n = 0 };
	FILE *file = tmpfile();

	assert_non_null(file);
	assert_int_equal(ca_timeline_write(timeline, input, 0, "recorded", file), 0);
	rewind(file);
	assert_non_null(fgets(back.head, sizeof(back.head), file));
	back.n = strtoul(strstr(back.head, kinds) + strlen(kinds), NULL, 10);
	assert_true(back.n <= ROWS_MAX);
	assert_int_equal(fread(back.kind, 1, back.n, file), back.n);
	assert_int_equal(fread(back.time_ns, 8, back.n, file), back.n);
	assert_int_equal(fread(back.arg, 4, back.n, file), back.n);
	assert_int_equal(fread(back.waiting, 8, back.n, file), back.n);
	fclose(file);
	return back;
}

static void
act(struct ca_replay_input *input, enum ca_replay_act_kind kind, unsigned place, uint64_t bytes)
{
	struct ca_replay_act each = { .time_ns = CA_REPLAY_NO_TIME,
				      .address = BASE + (uint64_t)place * SEGMENT,
				      .bytes = bytes,
				      .kind = (uint8_t)kind };

	assert_int_equal(ca_replay_input_add_act(input, &each), 0);
}

static void
event(struct ca_replay_input *input, enum ca_replay_kind kind, unsigned place, uint64_t time_ns)
{
	struct ca_replay_event each = { .id = BASE + (uint64_t)place * SEGMENT,
					.bytes = kind == CA_REPLAY_FREE ? 0 : 1000,
					.time_ns = time_ns,
					.kind = (uint8_t)kind };

	assert_int_equal(ca_replay_input_add(input, &each), 0);
}

static struct read_back
recorded(struct ca_replay_input *input)
{
	struct ca_timeline *timeline = NULL;
	struct ca_replay_error error;
	struct read_back back;

	assert_int_equal(ca_replay_input_resolve(input, &error), 0);
	assert_true(ca_timeline_is_recorded(input, 0));
	assert_int_equal(ca_timeline_from_input(input, 0, NULL, NULL, &timeline), 0);
	back = read_back(timeline, input);
	ca_timeline_destroy(timeline);
	ca_replay_input_clear(input);
	return back;
}

#define EXPECT_KINDS(back, ...)                                                                    \
	do {                                                                                       \
		const uint8_t expected[] = { __VA_ARGS__ };                                        \
		assert_int_equal((back).n, sizeof(expected));                                      \
		assert_memory_equal((back).kind, expected, sizeof(expected));                      \
	} while (0)

static void
segments_and_blocks_in_their_order(void **state)
{
	struct ca_replay_input input = { 0 };
	struct read_back back;

	act(&input, CA_REPLAY_TAKEN, 0, SEGMENT);
	event(&input, CA_REPLAY_ALLOC, 0, 1000);
	event(&input, CA_REPLAY_FREE, 0, 1500);
	act(&input, CA_REPLAY_RETURNED, 0, SEGMENT);
	back = recorded(&input);
	EXPECT_KINDS(back, CA_TIMELINE_TAKEN, CA_TIMELINE_ALLOC, CA_TIMELINE_FREED,
		     CA_TIMELINE_TRIM);
	assert_int_equal(back.time_ns[2], 500);
	assert_non_null(strstr(back.head, "\"clock\":true"));
}

static void
what_never_came_was_there_at_the_start(void **state)
{
	struct ca_replay_input input = { 0 };
	struct read_back back;

	act(&input, CA_REPLAY_RETURNED, 3, SEGMENT); /* never taken */
	act(&input, CA_REPLAY_TAKEN, 5, SEGMENT);
	event(&input, CA_REPLAY_ALLOC, 5, CA_REPLAY_NO_TIME);
	act(&input, CA_REPLAY_HELD, 5, SEGMENT);     /* taken above */
	act(&input, CA_REPLAY_HELD, 7, 2 * SEGMENT); /* never taken */
	back = recorded(&input);
	EXPECT_KINDS(back, CA_TIMELINE_HELD, CA_TIMELINE_HELD, CA_TIMELINE_GIVE_BACK,
		     CA_TIMELINE_TAKEN, CA_TIMELINE_ALLOC);
	assert_int_equal(back.arg[2], 0);
	assert_non_null(strstr(back.head, "\"clock\":false"));
}

/* A snapshot may lie: one range many times, or ranges that overlap. */
static void
memory_is_there_once_however_often_it_is_held(void **state)
{
	struct ca_replay_input input = { 0 };
	struct read_back back;
	unsigned i;

	for (i = 0; i < 40; i++) {
		act(&input, CA_REPLAY_HELD, 0, 3 * SEGMENT);
		act(&input, CA_REPLAY_HELD, 1, SEGMENT);
		act(&input, CA_REPLAY_HELD, 2, 2 * SEGMENT);
	}
	back = recorded(&input);
	EXPECT_KINDS(back, CA_TIMELINE_HELD, CA_TIMELINE_HELD);
	assert_non_null(strstr(back.head, "[\"segment_bytes\",\"u64\",2]"));
}

static void
a_return_is_named_by_its_call(void **state)
{
	struct ca_replay_input input = { 0 };
	struct read_back back;
	unsigned i;

	for (i = 0; i < 4; i++)
		act(&input, CA_REPLAY_TAKEN, i, SEGMENT);
	event(&input, CA_REPLAY_ALLOC, 0, CA_REPLAY_NO_TIME);
	act(&input, CA_REPLAY_RETURNED, 1, SEGMENT); /* before the driver was asked */
	act(&input, CA_REPLAY_REFUSED, 0, SEGMENT);
	act(&input, CA_REPLAY_RETURNED, 2, SEGMENT); /* and again */
	act(&input, CA_REPLAY_FAILED, 0, SEGMENT);
	act(&input, CA_REPLAY_RETURNED, 3, SEGMENT); /* nothing comes of it */
	event(&input, CA_REPLAY_FREE, 0, CA_REPLAY_NO_TIME);
	back = recorded(&input);
	EXPECT_KINDS(back, CA_TIMELINE_TAKEN, CA_TIMELINE_TAKEN, CA_TIMELINE_TAKEN,
		     CA_TIMELINE_TAKEN, CA_TIMELINE_ALLOC, CA_TIMELINE_GIVE_BACK,
		     CA_TIMELINE_REFUSED, CA_TIMELINE_FLUSH, CA_TIMELINE_FAILED, CA_TIMELINE_TRIM,
		     CA_TIMELINE_FREED);
}

static void
parts_of_segments_go_back(void **state)
{
	struct ca_replay_input input = { 0 };
	struct read_back back;

	act(&input, CA_REPLAY_TAKEN, 0, 4 * SEGMENT);
	act(&input, CA_REPLAY_TAKEN, 4, 2 * SEGMENT);
	event(&input, CA_REPLAY_ALLOC, 0, CA_REPLAY_NO_TIME);
	act(&input, CA_REPLAY_RETURNED, 3,
	    2 * SEGMENT); /* the end of one, the beginning of another */
	back = recorded(&input);
	EXPECT_KINDS(back, CA_TIMELINE_TAKEN, CA_TIMELINE_TAKEN, CA_TIMELINE_ALLOC,
		     CA_TIMELINE_TRIM, CA_TIMELINE_HELD, CA_TIMELINE_TRIM, CA_TIMELINE_HELD);
	assert_non_null(strstr(back.head, "[\"segment_bytes\",\"u64\",4]"));
}

static void
freed_memory_waits_until_it_is_completed(void **state)
{
	struct ca_replay_input input = { 0 };
	struct read_back back;

	act(&input, CA_REPLAY_TAKEN, 0, SEGMENT);
	event(&input, CA_REPLAY_ALLOC, 0, CA_REPLAY_NO_TIME);
	event(&input, CA_REPLAY_FREE, 0, CA_REPLAY_NO_TIME);
	act(&input, CA_REPLAY_SETTLING, 0, 1000);
	event(&input, CA_REPLAY_ALLOC, 0, CA_REPLAY_NO_TIME);
	act(&input, CA_REPLAY_COMPLETED, 0, 1000);
	back = recorded(&input);
	EXPECT_KINDS(back, CA_TIMELINE_TAKEN, CA_TIMELINE_ALLOC, CA_TIMELINE_FREED,
		     CA_TIMELINE_ALLOC, CA_TIMELINE_COMPLETED);
	assert_int_equal(back.waiting[1], 0);
	assert_int_equal(back.waiting[2], 1000);
	assert_int_equal(back.waiting[3], 1000);
	assert_int_equal(back.waiting[4], 0);
}

static void
a_range_that_wraps_is_no_segment(void **state)
{
	struct ca_timeline *timeline = ca_timeline_create(0);
	struct ca_replay_input input = { 0 };

	assert_non_null(timeline);
	ca_timeline_take(timeline, false, UINT64_MAX - 5, SEGMENT);
	ca_timeline_take(timeline, false, BASE, 0);
	ca_timeline_take(timeline, false, BASE, SEGMENT);
	ca_timeline_return(timeline, BASE, UINT64_MAX);
	EXPECT_KINDS(read_back(timeline, &input), CA_TIMELINE_TAKEN, CA_TIMELINE_TRIM);
	ca_timeline_destroy(timeline);
}

/* The replay's figures are those of its timeline, and are the same unwatched. */
static void
a_replay_is_watched_without_a_trace(void **state)
{
	static const char text[] = "A 1 3000000 0\nA 2 700 0\nF 1\nP\nA 3 90000000 0\nF 3\n";
	struct ca_replay_input input;
	struct ca_config config;
	struct ca_replay_setting setting = { .config = &config, .memory_bytes = 64 << 20 };
	struct ca_replay_result plain, watched;
	struct ca_timeline_replay replay;
	struct ca_replay_error error;
	struct read_back back;

	ca_config_default(&config);
	read_good(text, &input);
	assert_int_equal(ca_replay_run(&input, 0, &setting, &plain, &error), 0);
	assert_int_equal(ca_timeline_replay_begin(&replay, &input), 0);
	setting.observer = &replay.observer;
	assert_int_equal(ca_replay_run(&input, 0, &setting, &watched, &error), 0);
	assert_memory_equal(&plain, &watched, sizeof(plain));
	assert_true(watched.out_of_memory);
	back = read_back(replay.timeline, &input);
	assert_int_equal(back.kind[back.n - 1], CA_TIMELINE_FAILED);
	assert_true(memchr(back.kind, CA_TIMELINE_REFUSED, back.n));
	assert_true(memchr(back.kind, CA_TIMELINE_WAITED, back.n));
	assert_int_equal(ca_timeline_size_of(replay.timeline, 1), 1024);
	ca_timeline_replay_clear(&replay);
	ca_replay_input_clear(&input);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(segments_and_blocks_in_their_order),
		cmocka_unit_test(what_never_came_was_there_at_the_start),
		cmocka_unit_test(memory_is_there_once_however_often_it_is_held),
		cmocka_unit_test(a_return_is_named_by_its_call),
		cmocka_unit_test(parts_of_segments_go_back),
		cmocka_unit_test(freed_memory_waits_until_it_is_completed),
		cmocka_unit_test(a_range_that_wraps_is_no_segment),
		cmocka_unit_test(a_replay_is_watched_without_a_trace),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
