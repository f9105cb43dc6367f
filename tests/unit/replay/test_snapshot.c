/* SPDX-License-Identifier: MIT */
/* Snapshots: the same one in every notation, and what a pickle must not do. */
#include "tests/unit/replay/fixture.h"
#include "tests/unit/replay/small.h"

/* The event of small.h whose free was requested before the trace begins has only its completion. */
static void
expect_small(const struct ca_replay_input *input)
{
	EXPECT_EVENTS(input, { CA_REPLAY_LIVE, 4096, 5 }, { CA_REPLAY_LIVE, 512, 5 },
		      { CA_REPLAY_LIVE, 1000000, 5 }, { CA_REPLAY_ALLOC, 2 << 20, 7 },
		      { CA_REPLAY_FREE, 4096, 5 }, { CA_REPLAY_FREE, 512, 5 },
		      { CA_REPLAY_ALLOC, 600, 5 }, { CA_REPLAY_FREE, 600, 5 });
	assert_int_equal(input->events[7].time_ns, 9000);
	assert_int_equal(input->segment_events, 1);
	assert_int_equal(input->other_events, 2);
	assert_int_equal(input->recorded_reserved_bytes[0], 20 << 20);
}

static void
one_snapshot_is_the_same_in_every_notation(void **state)
{
	static const struct {
		const uint8_t *data;
		size_t size;
	} all[] = {
		{ small_pickle2, sizeof(small_pickle2) },
		{ small_pickle4, sizeof(small_pickle4) },
		{ small_pickle5, sizeof(small_pickle5) },
		{ small_json, sizeof(small_json) },
	};
	struct ca_replay_input input;
	struct ca_replay_error error;
	size_t i;

	for (i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		if (read_bytes(all[i].data, all[i].size, &input, &error))
			fail_msg("%zu: %s", i, error.text);
		expect_small(&input);
		ca_replay_input_clear(&input);
	}
}

static void
no_beginning_of_a_snapshot_is_taken_for_the_whole(void **state)
{
	assert_int_equal(read_prefixes(small_pickle2, sizeof(small_pickle2)), 0);
	assert_int_equal(read_prefixes(small_pickle4, sizeof(small_pickle4)), 0);
	assert_int_equal(read_prefixes(small_pickle5, sizeof(small_pickle5)), 0);
	assert_int_equal(read_prefixes(small_json, sizeof(small_json)), 0);
}

static void
refused(const char *bytes, size_t size, const char *words)
{
	struct ca_replay_input input;
	struct ca_replay_error error;

	assert_int_equal(read_bytes(bytes, size, &input, &error), -EINVAL);
	if (!strstr(error.text, words))
		fail_msg("'%s' does not say '%s'", error.text, words);
}

#define REFUSED(bytes, words) refused(bytes, sizeof(bytes) - 1, words)

static void
a_pickle_that_would_do_something_is_refused(void **state)
{
	REFUSED("\x80\x02"
		"cos\nsystem\nq\x00.",
		"names 'os.system'");
	REFUSED("\x80\x04\x8c\x02os\x8c\x06system\x93.", "names 'os.system'");
	REFUSED("\x80\x04\x93.", "names '?.?'");
	REFUSED("\x80\x02(ios\nsystem\n.", "names 'os.system'");
	REFUSED("\x80\x02\x82\x01.", "by number");
	REFUSED("\x80\x02]]R.", "calls a function");
	REFUSED("\x80\x02]]b.", "builds an object");
	REFUSED("\x80\x02]]\x81.", "builds an object");
	REFUSED("\x80\x02]Q.", "refers to something outside");
	REFUSED("\x80\x05\x97.", "buffer outside");
	REFUSED("\x80\x02I1\n.", "instruction 0x49");
}

static void
a_broken_pickle_is_refused(void **state)
{
	REFUSED("\x80\x01].", "pickle protocol 1");
	REFUSED("\x80\x06].", "pickle protocol 6");
	REFUSED("\x80\x02.", "stack is empty");
	REFUSED("\x80\x02]].", "left on its stack");
	REFUSED("\x80\x02(].", "left on its stack");
	REFUSED("\x80\x02]. ", "bytes after the end");
	REFUSED("\x80\x02u.", "no mark");
	REFUSED("\x80\x02(u.", "stack is empty");
	REFUSED("\x80\x02](Ku.", "");
	REFUSED("\x80\x02](u.", "not a dictionary");
	REFUSED("\x80\x02}(K\x01u.", "key without a value");
	REFUSED("\x80\x02}K\x01"
		"a.",
		"not a list");
	REFUSED("\x80\x02(]a.", "stack is empty");
	REFUSED("\x80\x02h\x07.", "never set");
	REFUSED("\x80\x02]r\xff\xff\xff\xff.", "memo number that is too large");
	REFUSED("\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\xff.", "cut off");
	REFUSED("\x80\x02X\xff\xff\xff\xff.", "cut off");
	REFUSED("\x80\x02\x8b\xff\xff\xff\x7f.", "cut off");
	REFUSED("\x80\x02K\x01.", "the snapshot is not a dictionary");
	REFUSED("\x80\x02}.", "not a snapshot");
}

static void
shared_lists_cannot_make_the_reader_work_for_ever(void **state)
{
	/* a list of 8 lists, each the same one of 8, and so on: blocks without end */
	char bytes[4096] = "\x80\x02}(X\x0d\x00\x00\x00"
			   "device_traces](}X\x06\x00\x00\x00"
			   "action";
	size_t at = 2 + 2 + 5 + 13 + 2 + 1 + 5 + 6, i;

	memcpy(bytes + at,
	       "X\x01\x00\x00\x00"
	       "xsq\x00",
	       9);
	at += 9;
	for (i = 0; i < 100; i++, at += 2)
		memcpy(bytes + at, "h\x00", 2);
	memcpy(bytes + at, "eq\x01", 3);
	at += 3;
	/* the list of lists: [traces] * 100, where traces is the list above */
	memcpy(bytes + at, "0](", 3);
	at += 3;
	for (i = 0; i < 60; i++, at += 2)
		memcpy(bytes + at, "h\x01", 2);
	memcpy(bytes + at, "eu.", 3);
	at += 3;
	refused(bytes, at, "again and again");
}

static void
deep_nesting_is_refused(void **state)
{
	static char bytes[100002] = "\x80\x02";
	static char text[100001];

	memset(bytes + 2, '(', 100000);
	refused(bytes, sizeof(bytes), "nested more than");
	memset(text, '[', 100000);
	refused(text, 100000, "nested more than");
}

static void
broken_json_is_refused_at_its_byte(void **state)
{
	REFUSED("{", "cut off");
	REFUSED("{\"a\":1,}", "expected a string");
	REFUSED("{\"a\" 1}", "expected ':'");
	REFUSED("[1,]", "expected a value");
	REFUSED("[1 2]", "expected ',' or ']'");
	REFUSED("[01]", "expected a value");
	REFUSED("[1.]", "expected a digit");
	REFUSED("[\"\\x\"]", "an escape");
	REFUSED("[\"\\u12g4\"]", "four hexadecimal digits");
	REFUSED("[\"\n\"]", "the end of a string");
	REFUSED("[nul]", "expected a value");
	REFUSED("[] x", "the end of the file");
	REFUSED("{\"a\":[{\"b\":[[1,2.5e+3,true],null]}]}", "not a snapshot");
}

static void
a_snapshot_with_wrong_fields_is_refused(void **state)
{
#define EVENT(fields) "{\"device_traces\":[[{" fields "}]]}"
	REFUSED(EVENT(""), "without an action");
	REFUSED(EVENT("\"action\":1"), "without an action");
	REFUSED(EVENT("\"action\":\"alloc\",\"size\":1"), "'addr' is missing");
	REFUSED(EVENT("\"action\":\"alloc\",\"addr\":1,\"size\":-1"),
		"'size' is not a whole number");
	REFUSED(EVENT("\"action\":\"alloc\",\"addr\":1,\"size\":1.5"),
		"'size' is not a whole number");
	REFUSED(EVENT("\"action\":\"alloc\",\"addr\":1,\"size\":0"), "block 1 has no bytes");
	REFUSED("{\"device_traces\":[[3]]}", "an event of device_traces is not a dictionary");
	REFUSED("{\"device_traces\":[3]}", "not a list");
	REFUSED("{\"segments\":[{\"device\":64,\"blocks\":[]}]}", "device 64 is too large");
	REFUSED("{\"segments\":[{}]}", "a segment without blocks");
	REFUSED("{\"segments\":[{\"blocks\":[{}]}]}", "a block without a state");
	REFUSED("{\"segments\":[{\"blocks\":[{\"state\":\"active_allocated\"}]}]}",
		"'address' is missing");
	REFUSED("{\"segments\":[{\"address\":1,\"blocks\":[{\"state\":\"inactive\"}]}]}",
		"'size' is missing");
#undef EVENT
}

/* Before there were addresses of blocks, traces and requested sizes: blocks tile their segment, and
 * the history of one has the size that was asked for. */
static void
older_snapshots_are_read(void **state)
{
	static const char *const forms[] = {
		"[{\"device\":0,\"address\":4096,\"total_size\":8192,\"stream\":3,\"blocks\":["
		"{\"size\":1024,\"state\":\"inactive\"},"
		"{\"size\":2048,\"state\":\"active_allocated\",\"history\":[{\"addr\":5120,"
		"\"real_size\":2000,\"frames\":[]},{\"addr\":5120,\"real_size\":7}]},"
		"{\"size\":512,\"state\":\"active_allocated\",\"history\":[]},"
		"{\"size\":4608,\"state\":\"active_allocated\"}]}]",
		"{\"segments\":[{\"device\":0,\"address\":4096,\"total_size\":8192,\"stream\":3,"
		"\"blocks\":[{\"size\":1024,\"state\":\"inactive\"},"
		"{\"size\":2048,\"requested_size\":2000,\"state\":\"active_allocated\"},"
		"{\"size\":512,\"state\":\"active_allocated\"},"
		"{\"size\":4608,\"state\":\"active_allocated\"}]}]}",
	};
	struct ca_replay_input input;
	size_t i;

	for (i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		read_good(forms[i], &input);
		EXPECT_EVENTS(&input, { CA_REPLAY_LIVE, 2000, 3 }, { CA_REPLAY_LIVE, 512, 3 },
			      { CA_REPLAY_LIVE, 4608, 3 });
		assert_int_equal(input.events[0].id, 4096 + 1024);
		assert_int_equal(input.events[1].id, 4096 + 3072);
		assert_int_equal(input.events[2].id, 4096 + 3584);
		assert_int_equal(input.recorded_reserved_bytes[0], 8192);
		ca_replay_input_clear(&input);
	}
}

static void
a_trace_that_goes_along_is_read_instead(void **state)
{
	/* the header of a trace without records: 56 bytes, then nothing */
	static const char whole[] =
		"{\"segments\":[],\"cachealloc_trace\":[\"iUNBdHINCgoEAwIBAQABADgA\","
		"\"AAA4AAAAGAAAAAEAAAAAAAAAAAAAAAAAAAAAAAAAAQAAAAEAAAA=\"]}";
	struct ca_replay_input input;

	read_good(whole, &input);
	assert_int_equal(input.count, 0);
	assert_true(input.truncated && input.told); /* it has no end */
	ca_replay_input_clear(&input);
	REFUSED("{\"cachealloc_trace\":[]}", "the trace in the snapshot is none");
	REFUSED("{\"cachealloc_trace\":[\"AAAA\"]}", "the trace in the snapshot is none");
	REFUSED("{\"cachealloc_trace\":[7]}", "not in base64");
	REFUSED("{\"cachealloc_trace\":[\"AAA\"]}", "not in base64");
	REFUSED("{\"cachealloc_trace\":[\"AA.A\"]}", "not in base64");
	REFUSED("{\"cachealloc_trace\":[\"A===\"]}", "not in base64");
	REFUSED("{\"cachealloc_trace\":[\"AA=AAAAA\"]}", "not in base64");
	REFUSED("{\"cachealloc_trace\":[\"AA==AAAA\"]}", "not in base64");
	REFUSED("{\"cachealloc_trace\":7}", "not a snapshot");
}

/* The text of a trace that is named again and again: memory as the square of the file. */
static void
a_trace_is_not_larger_than_its_file(void **state)
{
	enum { LENGTH = 4000, TIMES = 500 };
	static const char head[] = "\x80\x04}(\x8c\x10"
				   "cachealloc_trace](X\xa0\x0f\x00\x00iUNBdHINCgo";
	static char bytes[sizeof(head) + LENGTH + 2 * TIMES + 16];
	size_t at = sizeof(head) - 1, i;

	memcpy(bytes, head, at);
	memset(bytes + at, 'A', LENGTH - 11);
	at += LENGTH - 11;
	memcpy(bytes + at, "q\x00", 2);
	at += 2;
	for (i = 0; i < TIMES; i++, at += 2)
		memcpy(bytes + at, "h\x00", 2);
	memcpy(bytes + at, "eu.", 3);
	refused(bytes, at + 3, "larger than the file");
}

/* A pickle that sets one key at a time, comes back to a dictionary later, and to a list. */
static void
a_pickle_may_fill_its_containers_in_any_order(void **state)
{
	static const char bytes[] = "\x80\x02}q\x00X\x0d\x00\x00\x00"
				    "device_traces]q\x01"
				    "]q\x02"
				    "as"
				    "h\x02}q\x03X\x06\x00\x00\x00"
				    "actionX\x05\x00\x00\x00"
				    "allocsa0"
				    "h\x02}q\x04X\x06\x00\x00\x00"
				    "actionX\x04\x00\x00\x00"
				    "frees(X\x04\x00\x00\x00"
				    "sizeK\x09X\x04\x00\x00\x00"
				    "addr\x8a\x01\x07X\x04\x00\x00\x00"
				    "sizeK\x08ua0"
				    "h\x03(X\x04\x00\x00\x00"
				    "sizeJ\x08\x00\x00\x00X\x04\x00\x00\x00"
				    "addrM\x07\x00X\x06\x00\x00\x00"
				    "streamK\x02u0.";
	struct ca_replay_input input;
	struct ca_replay_error error;

	if (read_bytes(bytes, sizeof(bytes) - 1, &input, &error))
		fail_msg("%s", error.text);
	EXPECT_EVENTS(&input, { CA_REPLAY_ALLOC, 8, 2 }, { CA_REPLAY_FREE, 8, 2 });
	ca_replay_input_clear(&input);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_snapshot_is_the_same_in_every_notation),
		cmocka_unit_test(no_beginning_of_a_snapshot_is_taken_for_the_whole),
		cmocka_unit_test(a_pickle_that_would_do_something_is_refused),
		cmocka_unit_test(a_broken_pickle_is_refused),
		cmocka_unit_test(shared_lists_cannot_make_the_reader_work_for_ever),
		cmocka_unit_test(deep_nesting_is_refused),
		cmocka_unit_test(broken_json_is_refused_at_its_byte),
		cmocka_unit_test(a_snapshot_with_wrong_fields_is_refused),
		cmocka_unit_test(older_snapshots_are_read),
		cmocka_unit_test(a_trace_that_goes_along_is_read_instead),
		cmocka_unit_test(a_trace_is_not_larger_than_its_file),
		cmocka_unit_test(a_pickle_may_fill_its_containers_in_any_order),
	};

	return cmocka_run_group_tests_name("replay-snapshot", tests, NULL, NULL);
}
