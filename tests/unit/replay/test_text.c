/* SPDX-License-Identifier: MIT */
/* The formats that are lines of text, and what is the same for all of them. */
#include "tests/unit/replay/fixture.h"

static void
a_trc_is_read_in_order_with_what_was_live_first(void **state)
{
	struct ca_replay_input input;

	read_good("# made by hand\n\nA 1 100 0\nI 7 300 2\r\nA\t2  200   1\nF 1\nP\nF 7\nA 1 50 0",
		  &input);
	EXPECT_EVENTS(&input, { CA_REPLAY_LIVE, 300, 2 }, { CA_REPLAY_ALLOC, 100, 0 },
		      { CA_REPLAY_ALLOC, 200, 1 }, { CA_REPLAY_FREE, 100, 0 },
		      { CA_REPLAY_PHASE, 0, 0 }, { CA_REPLAY_FREE, 300, 2 },
		      { CA_REPLAY_ALLOC, 50, 0 });
	assert_int_equal(input.events[5].where, 8);
	assert_int_equal(input.n_blocks, 4);
	assert_int_equal(input.blocks[3], input.blocks[1]);
	assert_int_not_equal(input.blocks[6], input.blocks[1]);
	ca_replay_input_clear(&input);
}

static void
a_broken_trc_is_refused_at_its_line(void **state)
{
	read_bad("A 1 100 0\nA 1 100 0\n", 2, "block 1 is allocated, and it is live already");
	read_bad("A 1 100 0\nF 2\n", 2, "block 2 is freed, and it is not live");
	read_bad("A 1 100 0\nF 1\nF 1\n", 3, "block 1 is freed");
	read_bad("A 1 0 0\n", 1, "block 1 has no bytes");
	read_bad("A 1 100\n", 1, "expected 'A id bytes stream'");
	read_bad("A 1 100 0 9\n", 1, "expected 'A id bytes stream'");
	read_bad("A 1 100 0\nF 1 2\n", 2, "expected 'F id'");
	read_bad("A 1 x 0\n", 1, "bytes is not a number: 'x'");
	read_bad("A 1 -5 0\n", 1, "bytes is not a number");
	read_bad("A 1 5 0x1\n", 1, "stream is not a number");
	read_bad("A 1 18446744073709551616 0\n", 1, "bytes is not a number");
	read_bad("A 1 100 0\nQ\n", 2, "expected a line with I, A, F or P, found 'Q'");
	read_bad("P\n\x1b[31mhello\n", 2, "\\x1b[31mhello");
}

static void
what_is_no_trace_is_named(void **state)
{
	read_bad("", 0, "empty");
	read_bad("hello\n", 0, "no trace of a known format");
	read_bad("[rank0]: CUDA out of memory\n", 0, "a log? `cachealloc explain` reads it");
	read_bad("\xfd\x37\x7a\x58\x5a", 0, "xz -dc FILE | cachealloc-replay -");
	read_bad("\x1f\x8b\x08", 0, "gzip -dc");
}

static const char rmm[] = "Thread,Time,Action,Pointer,Size,Stream\n"
			  "10,23:59:59.999999,allocate,0x7f00,1024,0x1\n"
			  "10,23:59:59.999999,allocate failure,(nil),4096,0\n"
			  "11,00:00:00:5,allocate,0x8f00,2048,0x2\n"
			  "10,00:00:00.000007,allocate,0x9f00,512,0x2\n"
			  "10,00:00:00.000008,free,0x7f00,1024,0x1\n"
			  "10,00:00:00.000009,deallocate,0x1000,64,0x0\n"
			  "10,00:00:00.000009,free,(nil),0,0\n";

static void
an_rmm_log_is_read_over_midnight(void **state)
{
	struct ca_replay_input input;

	read_good(rmm, &input);
	assert_int_equal(input.count, 6);
	assert_int_equal(input.other_events, 2);
	expect_event(&input, 0, CA_REPLAY_LIVE, 64, 0);
	expect_event(&input, 1, CA_REPLAY_ALLOC, 1024, 1);
	expect_event(&input, 4, CA_REPLAY_FREE, 1024, 1);
	expect_event(&input, 5, CA_REPLAY_FREE, 64, 0);
	/* each thread has a per-thread stream of its own */
	assert_int_not_equal(input.events[2].stream, input.events[3].stream);
	assert_int_equal(input.events[2].time_ns - input.events[1].time_ns, 6000);
	assert_int_equal(input.events[4].time_ns - input.events[3].time_ns, 1000);
	assert_int_equal(input.events[3].thread, 0x10);
	ca_replay_input_clear(&input);
}

static void
an_rmm_log_with_seconds_is_read(void **state)
{
	struct ca_replay_input input;

	read_good("Thread,Time,Action,Pointer,Size,Stream\n"
		  "1,1634567890.25,allocate,7f00,8,7f8a38001020\n1,1634567891,free,7f00,8,0\n",
		  &input);
	assert_int_equal(input.events[1].time_ns - input.events[0].time_ns, 750000000);
	expect_event(&input, 1, CA_REPLAY_FREE, 8, 0x7f8a38001020);
	ca_replay_input_clear(&input);
}

static void
a_broken_rmm_log_is_refused_at_its_line(void **state)
{
#define HEADER "Thread,Time,Action,Pointer,Size,Stream\n"
	read_bad(HEADER "1,00:00:00.1,allocate,0x1,8\n", 2, "expected 6 fields");
	read_bad(HEADER "1,00:00:00.1,allocate,0x1,8,0,0\n", 2, "expected 6 fields");
	read_bad(HEADER "1,00:00:00.1,resize,0x1,8,0\n", 2, "unknown action: 'resize'");
	read_bad(HEADER "1,24:00:00.1,allocate,0x1,8,0\n", 2, "not a time: '24:00:00.1'");
	read_bad(HEADER "1,00:00,allocate,0x1,8,0\n", 2, "not a time");
	read_bad(HEADER "1,,allocate,0x1,8,0\n", 2, "not a time");
	read_bad(HEADER "x,00:00:00.1,allocate,0x1,8,0\n", 2, "thread is not a number");
	read_bad(HEADER "1,00:00:00.1,allocate,zz,8,0\n", 2, "not an address: 'zz'");
	read_bad(HEADER "1,00:00:00.1,allocate,0x1,8k,0\n", 2, "size is not a number: '8k'");
	read_bad(HEADER "1,00:00:00.1,allocate,0x1,8,?\n", 2, "not a stream: '?'");
	read_bad(HEADER "1,00:00:00.1,allocate,0x7f0000000000,8,0\n"
			"1,00:00:00.1,allocate,0x7f0000000000,8,0\n",
		 3, "block 0x7f0000000000 is allocated, and it is live already");
#undef HEADER
}

static const char lifetimes[] = "id,lower,upper,size\nb1,0,3,4\nb2,3,9,5\nb3,-1,9,6\n";

static void
lifetimes_end_before_others_begin(void **state)
{
	struct ca_replay_input input;

	read_good(lifetimes, &input);
	EXPECT_EVENTS(&input, { CA_REPLAY_ALLOC, 6, 0 }, { CA_REPLAY_ALLOC, 4, 0 },
		      { CA_REPLAY_FREE, 4, 0 }, { CA_REPLAY_ALLOC, 5, 0 }, { CA_REPLAY_FREE, 5, 0 },
		      { CA_REPLAY_FREE, 6, 0 });
	assert_true(input.events[5].time_ns == CA_REPLAY_NO_TIME);
	ca_replay_input_clear(&input);
	read_good("size,offset,upper,lower,id\n10,99,2,1,x\n", &input);
	expect_event(&input, 0, CA_REPLAY_ALLOC, 10, 0);
	ca_replay_input_clear(&input);
}

static void
broken_lifetimes_are_refused_at_their_line(void **state)
{
	read_bad("id,lower,upper\n1,0,1\n", 1, "expected the columns id,lower,upper,size");
	read_bad("id,lower,upper,size,gaps\n1,0,1,5,\n", 1, "found 'gaps'");
	read_bad("id,lower,upper,size\n1,0,1\n", 2, "expected 4 fields");
	read_bad("id,lower,upper,size\n1,0,x,5\n", 2, "upper is not a number: 'x'");
	read_bad("id,lower,upper,size\n1,0,1,0\n", 2, "size is not a number above 0");
	read_bad("id,lower,upper,size\n1,0,1,5\n2,3,3,5\n", 3, "upper is not above lower");
}

static void
every_beginning_of_a_text_is_read_or_refused(void **state)
{
	static const char trc[] = "I 7 300 2\nA 1 100 0\nA 2 200 1\nF 1\nP\nF 7\n";

	assert_true(read_prefixes(trc, sizeof(trc) - 1) >= 6);
	assert_true(read_prefixes(rmm, sizeof(rmm) - 1) >= 7);
	assert_true(read_prefixes(lifetimes, sizeof(lifetimes) - 1) >= 3);
}

static void
times_that_fall_are_raised(void **state)
{
	struct ca_replay_input input;

	read_good("Thread,Time,Action,Pointer,Size,Stream\n"
		  "1,00:00:02,allocate,1,8,0\n2,00:00:01,allocate,2,8,0\n",
		  &input);
	assert_int_equal(input.events[1].time_ns, input.events[0].time_ns);
	ca_replay_input_clear(&input);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_trc_is_read_in_order_with_what_was_live_first),
		cmocka_unit_test(a_broken_trc_is_refused_at_its_line),
		cmocka_unit_test(what_is_no_trace_is_named),
		cmocka_unit_test(an_rmm_log_is_read_over_midnight),
		cmocka_unit_test(an_rmm_log_with_seconds_is_read),
		cmocka_unit_test(a_broken_rmm_log_is_refused_at_its_line),
		cmocka_unit_test(lifetimes_end_before_others_begin),
		cmocka_unit_test(broken_lifetimes_are_refused_at_their_line),
		cmocka_unit_test(every_beginning_of_a_text_is_read_or_refused),
		cmocka_unit_test(times_that_fall_are_raised),
	};

	return cmocka_run_group_tests_name("replay-text", tests, NULL, NULL);
}
