/* SPDX-License-Identifier: MIT */
/* Traces made by hand, byte by byte as the format says, and what the replay gets of them. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "allocator/replay/input_trace.h"
#include "allocator/trace/format.h"

enum { FILE_MAX = 4096, NONE = CA_TRACE_NO_STREAM };

static uint8_t file[FILE_MAX];
static size_t size;
static struct ca_replay_input input;
static struct ca_replay_error error;

static struct ca_trace_header *
header(void)
{
	return (struct ca_trace_header *)file;
}

static void
begin(uint32_t header_bytes, uint32_t record_bytes)
{
	struct ca_trace_header fixed = {
		.byte_order = CA_TRACE_BYTE_ORDER,
		.version = CA_TRACE_VERSION,
		.header_bytes = header_bytes,
		.fixed_bytes = sizeof(fixed),
		.record_bytes = record_bytes,
		.tick_ns = 1,
		.start_ns = 1000,
	};

	memset(file, 0xee, sizeof(file));
	memcpy(fixed.magic, CA_TRACE_MAGIC, 8);
	memcpy(file, &fixed, sizeof(fixed));
	size = header_bytes;
}

static void
record(uint8_t kind, uint8_t device, uint16_t stream, uint64_t ns, uint64_t a, uint64_t b)
{
	struct ca_trace_record one = { kind, device, stream, (uint32_t)ns, a, b };

	memcpy(file + size, &one, sizeof(one));
	size += header()->record_bytes;
	assert_true(size <= sizeof(file));
}

static int
read_it(size_t length)
{
	uint8_t *copy = malloc(length ? length : 1); /* so that a sanitizer sees its end */
	int r;

	ca_replay_input_clear(&input);
	memset(&input, 0, sizeof(input));
	memcpy(copy, file, length);
	r = ca_replay_read_trace(copy, length, &input, &error);
	free(copy);
	return r;
}

static void
assert_event(size_t i, enum ca_replay_kind kind, uint64_t id, uint64_t bytes, uint64_t ns,
	     uint64_t stream)
{
	assert_true(i < input.count);
	assert_int_equal(input.events[i].kind, kind);
	assert_int_equal(input.events[i].id, id);
	assert_int_equal(input.events[i].bytes, bytes);
	assert_int_equal(input.events[i].time_ns, ns);
	assert_int_equal(input.events[i].stream, stream);
}

static const uint64_t no_users = 0xffffffffffff;

static void
test_every_kind_is_understood(void **state)
{
	begin(sizeof(struct ca_trace_header), 24);
	record(CA_TRACE_DEVICE, 0, NONE, 1000, 1 << 30, 0);
	record(CA_TRACE_TAKEN, 0, NONE, 1000, 0x10000, 0x20000);
	record(CA_TRACE_ALLOC, 0, 3, 1001, 0x10000, (uint64_t)7 << 48 | 100);
	record(CA_TRACE_ADOPT, 2, NONE, 1002, 0x90000, 200);
	record(CA_TRACE_FREE, 0, NONE, 1003, 0x10000, no_users);
	record(CA_TRACE_KEPT, 0, 3, 1004, 0x10000, 100);
	record(CA_TRACE_FAILED, 0, NONE, 1005, 1 << 30, 2);
	record(CA_TRACE_REFUSED, 0, NONE, 1005, 1 << 30, 2);
	record(CA_TRACE_FINISHED, 0, 3, 1006, 1, 0); /* another stream is at work */
	record(CA_TRACE_FINISHED, 0, 3, 1006, 0, 1); /* it has later work itself */
	record(CA_TRACE_FINISHED, 0, 3, 1007, 0, 0);
	record(CA_TRACE_FREE, 0, NONE, 1008, 0x10000, no_users);
	record(CA_TRACE_TAKEN, 1, NONE, 1009, 0x50000, 0x3000);
	record(CA_TRACE_RETURNED, 0, NONE, 1009, 0x10000, 0x20000);
	record(CA_TRACE_END, 0xff, NONE, 1010, 0, 0);
	assert_int_equal(read_it(size), 0);
	assert_false(input.truncated);
	assert_int_equal(input.count, 6);
	assert_event(0, CA_REPLAY_ALLOC, 0x10000, 100, 1, 4);
	assert_int_equal(input.events[0].thread, 7);
	assert_event(1, CA_REPLAY_ALLOC, 0x90000, 200, 2, 0);
	assert_int_equal(input.events[1].device, 2);
	assert_event(2, CA_REPLAY_FREE, 0x10000, 0, 3, 0);
	assert_event(3, CA_REPLAY_ALLOC, 0x10000, 100, 4, 4);
	assert_event(4, CA_REPLAY_PHASE, 0, 0, 7, 0);
	assert_event(5, CA_REPLAY_FREE, 0x10000, 0, 8, 0);
	assert_int_equal(input.segment_events, 4);
	assert_int_equal(input.other_events, 5);
	assert_int_equal(input.recorded_reserved_bytes[0], 0);
	assert_int_equal(input.recorded_reserved_bytes[1], 0x3000);
	assert_int_equal(input.recorded_failed_calls[0], 1);
	assert_int_equal(input.recorded_failed_bytes[0], 1 << 30);
	assert_int_equal(input.recorded_failed_calls[1], 0);
	assert_int_equal(input.about.device_bytes[0], 1 << 30);
	assert_int_equal(input.about.device_bytes[1], 0);
}

static void
test_the_last_rejected_is_kept_with_what_was_held(void **state)
{
	const struct ca_replay_rejected *rejected = &input.rejected[0];

	begin(sizeof(struct ca_trace_header), 24);
	record(CA_TRACE_FAILED, 0, NONE, 1000, 5, 2);
	record(CA_TRACE_TAKEN, 0, NONE, 1001, 0x10000, 0x20000);
	record(CA_TRACE_REFUSED, 0, NONE, 1002, 700, 2);
	record(CA_TRACE_ALLOC, 0, 3, 1003, 0x10000, 100); /* served all the same */
	record(CA_TRACE_REFUSED, 0, NONE, 1004, 3000, 2);
	record(CA_TRACE_REFUSED, 0, NONE, 1004, 2000, 2);
	record(CA_TRACE_FAILED, 0, 3, 1005, 1500, 2);
	record(CA_TRACE_FREE, 0, NONE, 1006, 0x10000, no_users);
	record(CA_TRACE_FREE, 0, NONE, 1006, 0x90000, no_users);
	record(CA_TRACE_FAILED, 1, NONE, 1007, 9, 2);
	assert_int_equal(read_it(size), 0);
	assert_int_equal(input.recorded_failed_calls[0], 2);
	assert_int_equal(rejected->event.kind, CA_REPLAY_ALLOC);
	assert_int_equal(rejected->event.bytes, 1500);
	assert_int_equal(rejected->event.stream, 4);
	assert_int_equal(rejected->event.time_ns, 5);
	assert_int_equal(rejected->before, 1);
	assert_int_equal(rejected->reserved_bytes, 0x20000);
	assert_int_equal(rejected->segment_bytes, 2000);
	assert_true(rejected->free_bytes == UINT64_MAX);
	assert_int_equal(input.rejected[1].event.bytes, 9);
	assert_int_equal(input.rejected[1].segment_bytes, 0);
	assert_int_equal(input.rejected[2].event.bytes, 0);
}

static void
test_a_block_belongs_to_who_used_it(void **state)
{
	begin(sizeof(struct ca_trace_header), 24);
	record(CA_TRACE_STREAM, 0, 9, 1000, 0, CA_TRACE_STREAM_LEGACY);
	record(CA_TRACE_STREAM, 0, 5, 1000, 0, CA_TRACE_STREAM_BLOCKING);
	for (unsigned i = 0; i < 4; i++)
		record(CA_TRACE_ALLOC, 0, 3, 1000, 0x1000 * i, 8);
	record(CA_TRACE_FREE, 0, 5, 1000, 0, no_users);
	record(CA_TRACE_FREE, 0, 9, 1000, 0x1000, no_users);
	record(CA_TRACE_FREE, 0, CA_TRACE_ANY_STREAM, 1000, 0x2000, no_users);
	record(CA_TRACE_FREE, 0, NONE, 1000, 0x3000, no_users);
	assert_int_equal(read_it(size), 0);
	assert_int_equal(input.events[0].stream, 6);
	assert_int_equal(input.events[1].stream, 0); /* the default stream */
	assert_int_equal(input.events[2].stream, 4);
	assert_int_equal(input.events[3].stream, 4);
	assert_true(input.truncated); /* no end */
}

/* Begins a trace that tells what work there was. */
static void
begin_told(void)
{
	begin(sizeof(struct ca_trace_header), 24);
	header()->minor = CA_TRACE_MINOR_WORK;
}

static void
test_work_and_its_end_are_told(void **state)
{
	begin_told();
	record(CA_TRACE_TAKEN, 0, NONE, 1000, 0x10000, 0x20000);
	record(CA_TRACE_ALLOC, 0, NONE, 1001, 0x10000, 100);
	record(CA_TRACE_WORK, 0, 3, 1002, 0, 0);
	record(CA_TRACE_FREE, 0, 3, 1003, 0x10000, no_users);
	record(CA_TRACE_FINISHED, 0, 3, 1004, 1, 0);
	record(CA_TRACE_FINISHED, 0, 3, 1005, 0, 1); /* of what, is not told */
	record(CA_TRACE_FINISHED, 0, 3, 1006, 0, 0);
	record(CA_TRACE_ALLOC, 0, 3, 1007, 0x10000, 100);
	record(CA_TRACE_FREE, 0, NONE, 1008, 0x10000, no_users);
	assert_int_equal(read_it(size), 0);
	assert_true(input.told);
	assert_int_equal(input.count, 8);
	assert_event(0, CA_REPLAY_PLACE, 0x10000, 0x20000, CA_REPLAY_NO_TIME, 0);
	assert_event(1, CA_REPLAY_ALLOC, 0x10000, 100, 1, 4);
	assert_true(input.events[1].no_stream);
	assert_event(2, CA_REPLAY_SUBMIT, 0, 0, 2, 4);
	assert_event(3, CA_REPLAY_FREE, 0x10000, 0, 3, 0);
	assert_false(input.events[3].no_stream);
	assert_event(4, CA_REPLAY_SEEN, 4, 0, 4, 4);
	assert_event(5, CA_REPLAY_PHASE, 0, 0, 6, 0);
	assert_false(input.events[6].no_stream);
	assert_true(input.events[7].no_stream);
}

static void
test_a_call_that_looks_begins_with_the_first_look(void **state)
{
	const uint64_t thread = (uint64_t)7 << 48, other = (uint64_t)8 << 48;

	begin_told();
	record(CA_TRACE_LOOK, 0, NONE, 1001, 0, thread);
	record(CA_TRACE_FREE, 0, NONE, 1002, 0x90000, no_users);
	record(CA_TRACE_ALLOC, 0, 3, 1003, 0x90000, other | 100);
	record(CA_TRACE_LOOK, 0, NONE, 1004, 0, thread);
	record(CA_TRACE_FINISHED, 0, 3, 1005, 0, other); /* told by somebody else's call */
	record(CA_TRACE_FINISHED, 0, 3, 1006, 0, thread);
	record(CA_TRACE_ALLOC, 0, 3, 1007, 0x10000, thread | 100);
	record(CA_TRACE_FINISHED, 0, 3, 1008, 0, thread);
	record(CA_TRACE_LOOK, 0, NONE, 1009, 0, thread);
	record(CA_TRACE_FAILED, 0, NONE, 1010, 1 << 30, thread | 2);
	record(CA_TRACE_ALLOC, 0, 3, 1011, 0x20000, thread | 100);
	assert_int_equal(read_it(size), 0);
	assert_int_equal(input.count, 6);
	assert_event(0, CA_REPLAY_ALLOC, 0x90000, 100, 3, 4);
	assert_event(1, CA_REPLAY_PHASE, 0, 0, 5, 0);
	assert_event(2, CA_REPLAY_SEEN, 6, 0, 1, 4);
	assert_event(3, CA_REPLAY_ALLOC, 0x10000, 100, 1, 4);
	assert_event(4, CA_REPLAY_PHASE, 0, 0, 8, 0);
	assert_event(5, CA_REPLAY_ALLOC, 0x20000, 100, 11, 4);
}

static void
test_users_that_are_not_listed_leave_it_untold(void **state)
{
	begin_told();
	record(CA_TRACE_ALLOC, 0, 3, 1001, 0x10000, 100);
	record(CA_TRACE_FREE, 0, CA_TRACE_ANY_STREAM, 1002, 0x10000, no_users);
	assert_int_equal(read_it(size), 0);
	assert_false(input.told);
	begin(sizeof(struct ca_trace_header), 24); /* an older one */
	record(CA_TRACE_ALLOC, 0, 3, 1001, 0x10000, 100);
	assert_int_equal(read_it(size), 0);
	assert_false(input.told);
}

static void
test_times_go_on_where_their_32_bits_end(void **state)
{
	const uint64_t far = (uint64_t)7 << 33;

	begin(sizeof(struct ca_trace_header), 24);
	header()->start_ns = 0xfffffff0;
	record(CA_TRACE_FINISHED, 0, 1, 0xfffffff8, 0, 0);
	record(CA_TRACE_FINISHED, 0, 1, 0x100000008, 0, 0);
	record(CA_TRACE_FINISHED, 0, 1, 0xfffffffc, 0, 0); /* of a thread that was held up */
	record(CA_TRACE_FINISHED, 0, 1, 0x100000010, 0, 0);
	record(CA_TRACE_TIME, 0xff, NONE, far, far, 0);
	record(CA_TRACE_FINISHED, 0, 1, far + 3, 0, 0);
	assert_int_equal(read_it(size), 0);
	assert_int_equal(input.events[0].time_ns, 0x8);
	assert_int_equal(input.events[1].time_ns, 0x18);
	assert_int_equal(input.events[2].time_ns, 0xc);
	assert_int_equal(input.events[3].time_ns, 0x20);
	assert_int_equal(input.events[4].time_ns, far + 3 - 0xfffffff0);
}

static void
test_what_a_later_version_adds_is_skipped(void **state)
{
	begin(sizeof(struct ca_trace_header) + 64, 40);
	header()->fixed_bytes += 16;
	header()->minor = 9;
	record(200, 77, 1, 1000, 1, 2);
	record(CA_TRACE_ALLOC, 0, NONE, 1001, 0x1000, 8);
	record(0, 0, 0, 0, 0, 0);
	record(CA_TRACE_END, 0xff, NONE, 1002, 0, 0);
	assert_int_equal(read_it(size), 0);
	assert_int_equal(input.count, 1);
	assert_event(0, CA_REPLAY_ALLOC, 0x1000, 8, 1, 0);
	assert_int_equal(input.other_events, 3);
	assert_false(input.truncated);
}

static void
test_a_trace_cut_anywhere_is_a_shorter_trace(void **state)
{
	begin(sizeof(struct ca_trace_header) + 16, 24);
	for (unsigned i = 0; i < 10; i++)
		record(CA_TRACE_ALLOC, 0, NONE, 1000 + i, 0x1000 * i, 8);
	record(CA_TRACE_END, 0xff, NONE, 1020, 0, 0);
	for (size_t length = 8; length < size; length++) {
		size_t head = sizeof(struct ca_trace_header) + 16;

		assert_true(ca_replay_is_trace(file, length));
		assert_int_equal(read_it(length), 0);
		assert_true(input.truncated);
		assert_int_equal(input.count, length < head ? 0 : (length - head) / 24);
	}
	assert_false(ca_replay_is_trace(file, 7));
}

static void
assert_refused(const char *word, uint64_t where)
{
	assert_int_equal(read_it(size), -EINVAL);
	assert_non_null(strstr(error.text, word));
	assert_false(error.line);
	assert_int_equal(error.where, where);
}

static void
test_a_header_that_makes_no_sense_is_refused(void **state)
{
	static const struct {
		size_t at;
		uint32_t value;
		const char *word;
	} rows[] = {
		{ 8, 0x04030201, "other byte order" },
		{ 8, 7, "not to be told" },
		{ 12, 2, "version 2" },
		{ 16, 55, "header" },
		{ 16, 57, "header" },
		{ 16, (1 << 20) + 8, "header" },
		{ 16, 0xfffffff8, "header" },
		{ 20, 48, "header" },
		{ 20, 64, "header" },
		{ 24, 0, "records" },
		{ 24, 16, "records" },
		{ 24, 25, "records" },
		{ 24, 0xfffffff8, "records" },
		{ 28, 0, "time" },
		{ 28, 0xffffffff, "time" },
	};

	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		begin(sizeof(struct ca_trace_header), 24);
		record(CA_TRACE_END, 0xff, NONE, 1000, 0, 0);
		memcpy(file + rows[i].at, &rows[i].value, 4);
		assert_refused(rows[i].word, rows[i].at == 20 ? 16 : rows[i].at);
	}
}

static void
test_events_that_make_no_sense_are_refused(void **state)
{
	uint64_t where = sizeof(struct ca_trace_header);

	begin((uint32_t)where, 24);
	record(CA_TRACE_ALLOC, 0, NONE, 1000, 0x1000, 0);
	assert_refused("nothing", where);
	begin((uint32_t)where, 24);
	record(CA_TRACE_ALLOC, 64, NONE, 1000, 0x1000, 8);
	assert_refused("device 64", where);
	begin((uint32_t)where, 24);
	record(CA_TRACE_TAKEN, 255, NONE, 1000, 0x1000, 8);
	assert_refused("device 255", where);
	begin((uint32_t)where, 24);
	record(CA_TRACE_ALLOC, 0, NONE, 1000, 0x1000, 8);
	record(CA_TRACE_ALLOC, 1, NONE, 1000, 0x1000, 8);
	record(CA_TRACE_ALLOC, 0, NONE, 1000, 0x1000, 8);
	assert_refused("0x1000 is allocated while it is live", where + 48);
}

static void
test_frees_of_what_is_not_in_the_trace_are_left_out(void **state)
{
	begin(sizeof(struct ca_trace_header), 24);
	record(CA_TRACE_FREE, 0, NONE, 1000, 0x1000, no_users);
	record(CA_TRACE_ALLOC, 0, NONE, 1000, 0x1000, 8);
	record(CA_TRACE_FREE, 1, NONE, 1000, 0x1000, no_users);
	assert_int_equal(read_it(size), 0);
	assert_int_equal(input.count, 1);
	assert_int_equal(input.other_events, 2);
}

static void
test_damaged_traces_are_read_or_refused(void **state)
{
	const unsigned seed = 20;
	unsigned random = seed;

	print_message("# seed %u\n", seed);
	for (unsigned round = 0; round < 20000; round++) {
		begin(sizeof(struct ca_trace_header), 24);
		for (unsigned i = 0; i < 20; i++)
			record((uint8_t)(rand_r(&random) % 17), (uint8_t)(rand_r(&random) % 3),
			       (uint16_t)rand_r(&random), (uint64_t)rand_r(&random),
			       (uint64_t)(rand_r(&random) % 5), (uint64_t)rand_r(&random));
		for (unsigned i = 0; i < 3; i++)
			file[8 + (unsigned)rand_r(&random) % (size - 8)] ^=
				(uint8_t)(1 << rand_r(&random) % 8);
		(void)read_it(size - (unsigned)rand_r(&random) % 100);
		assert_true(input.count <= 20);
	}
}

static int
clear(void **state)
{
	ca_replay_input_clear(&input);
	return 0;
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_kind_is_understood),
		cmocka_unit_test(test_the_last_rejected_is_kept_with_what_was_held),
		cmocka_unit_test(test_a_block_belongs_to_who_used_it),
		cmocka_unit_test(test_work_and_its_end_are_told),
		cmocka_unit_test(test_a_call_that_looks_begins_with_the_first_look),
		cmocka_unit_test(test_users_that_are_not_listed_leave_it_untold),
		cmocka_unit_test(test_times_go_on_where_their_32_bits_end),
		cmocka_unit_test(test_what_a_later_version_adds_is_skipped),
		cmocka_unit_test(test_a_trace_cut_anywhere_is_a_shorter_trace),
		cmocka_unit_test(test_a_header_that_makes_no_sense_is_refused),
		cmocka_unit_test(test_events_that_make_no_sense_are_refused),
		cmocka_unit_test(test_frees_of_what_is_not_in_the_trace_are_left_out),
		cmocka_unit_test(test_damaged_traces_are_read_or_refused),
	};

	return cmocka_run_group_tests(tests, NULL, clear);
}
