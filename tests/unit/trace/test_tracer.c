/* SPDX-License-Identifier: MIT */
/* The writer: what goes in comes out, in order, whatever the threads, the clock and the file do. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "allocator/replay/input_trace.h"
#include "allocator/trace/trace.h"
#include "config/path.h"

enum { THREADS = 8, EACH = 20000 };

static char folder[] = "/tmp/ca-tracer-XXXXXX";
static uint64_t now;

static uint64_t
clock_ns(void *self)
{
	return now;
}

static struct ca_tracer *
start(void)
{
	char pattern[64];
	struct ca_trace_start one = {
		.pattern = pattern,
		.program = "test",
		.settings = "A=1\nB=2\n",
		.clock = { .clock_ns = clock_ns },
	};
	struct ca_tracer *tracer = NULL;

	snprintf(pattern, sizeof(pattern), "%s/%%n.trace", folder);
	assert_int_equal(ca_tracer_open(&one, &tracer), 0);
	return tracer;
}

static void
add(struct ca_tracer *tracer, uint16_t stream, uint64_t a)
{
	struct ca_trace_record record = { .kind = 99, .device = 5, .stream = stream, .a = a };

	ca_tracer_add(tracer, &record, false);
}

struct content {
	struct ca_trace_header header;
	uint8_t *data;
	size_t size;
	const struct ca_trace_record *records;
	size_t count;
};

/* The file as it is now; removed, and to be freed. */
static struct content
content_of(const struct ca_tracer *tracer)
{
	struct content content = { 0 };
	FILE *file = fopen(ca_tracer_path(tracer), "rb");

	assert_non_null(file);
	content.data = malloc(16 << 20);
	content.size = fread(content.data, 1, 16 << 20, file);
	fclose(file);
	assert_true(content.size >= sizeof(content.header));
	memcpy(&content.header, content.data, sizeof(content.header));
	content.records = (const void *)(content.data + content.header.header_bytes);
	content.count = (content.size - content.header.header_bytes) / 24;
	assert_int_equal(content.header.header_bytes + content.count * 24, content.size);
	unlink(ca_tracer_path(tracer));
	return content;
}

static void
test_the_file_says_what_it_is(void **state)
{
	struct ca_tracer *tracer;
	struct content content;
	const uint32_t *field;

	now = 12345;
	tracer = start();
	ca_tracer_close(tracer);
	content = content_of(tracer);
	assert_memory_equal(content.header.magic, "\211CAtr\r\n\n", 8);
	assert_int_equal(content.header.byte_order, 0x01020304);
	assert_int_equal(content.header.version, 1);
	assert_int_equal(content.header.start_ns, 12345);
	assert_int_equal(content.header.pid, getpid());
	assert_int_equal(content.header.parent_pid, getppid());
	field = (const uint32_t *)(content.data + content.header.fixed_bytes);
	assert_int_equal(field[0], CA_TRACE_FIELD_LIBRARY);
	field += 2 + (field[1] + 7) / 8 * 2;
	assert_int_equal(field[0], CA_TRACE_FIELD_PROGRAM);
	assert_int_equal(field[1], 4);
	assert_memory_equal(field + 2, "test\0\0\0\0", 8);
	field += 4;
	assert_int_equal(field[0], CA_TRACE_FIELD_SETTINGS);
	assert_memory_equal(field + 2, "A=1\nB=2\n", field[1]);
	assert_int_equal(content.count, 1);
	assert_int_equal(content.records[0].kind, CA_TRACE_END);
	free(content.data);
}

static void
test_records_come_out_as_they_went_in(void **state)
{
	struct ca_tracer *tracer = start();
	struct content content;

	for (unsigned i = 0; i < 3 * CA_TRACE_RING; i++) {
		now += 1000;
		add(tracer, (uint16_t)i, UINT64_MAX - i);
		if (ca_tracer_is_due(tracer))
			ca_tracer_drain(tracer);
	}
	ca_tracer_close(tracer);
	add(tracer, 1, 1); /* comes too late */
	content = content_of(tracer);
	assert_int_equal(content.count, 3 * CA_TRACE_RING + 1);
	for (unsigned i = 0; i < 3 * CA_TRACE_RING; i++) {
		assert_int_equal(content.records[i].stream, (uint16_t)i);
		assert_int_equal(content.records[i].device, 5);
		assert_int_equal(content.records[i].a, UINT64_MAX - i);
	}
	free(content.data);
}

/* What a kill would leave. */
static void
test_little_is_in_memory_only(void **state)
{
	struct ca_tracer *tracer = start();
	struct content content;
	unsigned i;

	for (i = 0; i < CA_TRACE_DRAIN; i++)
		add(tracer, 0, i);
	assert_false(ca_tracer_is_due(tracer));
	add(tracer, 0, i);
	assert_true(ca_tracer_is_due(tracer));
	ca_tracer_drain(tracer);
	assert_false(ca_tracer_is_due(tracer));
	add(tracer, 0, 0);
	assert_false(ca_tracer_is_due(tracer));
	now += CA_TRACE_DRAIN_NS;
	add(tracer, 0, 0);
	assert_true(ca_tracer_is_due(tracer));
	content = content_of(tracer);
	assert_int_equal(content.count, CA_TRACE_DRAIN + 1);
	free(content.data);
	ca_tracer_close(tracer);
}

static void
test_long_pauses_are_recorded(void **state)
{
	static const uint64_t pauses[] = { 0,          (uint64_t)1 << 30, (uint64_t)1 << 31,
					   UINT32_MAX, (uint64_t)1 << 32, (uint64_t)1 << 40 };
	struct ca_tracer *tracer = start();
	uint64_t begun = now, at[6];
	struct ca_replay_input input = { 0 };
	struct ca_replay_error error;
	struct content content;

	for (unsigned i = 0; i < 6; i++) {
		struct ca_trace_record record = { .kind = CA_TRACE_FINISHED };

		now += pauses[i] + 1;
		at[i] = now - begun;
		ca_tracer_add(tracer, &record, false);
	}
	ca_tracer_close(tracer);
	content = content_of(tracer);
	assert_int_equal(ca_replay_read_trace(content.data, content.size, &input, &error), 0);
	assert_int_equal(input.count, 6);
	for (unsigned i = 0; i < 6; i++)
		assert_int_equal(input.events[i].time_ns, at[i]);
	ca_replay_input_clear(&input);
	free(content.data);
}

struct worker {
	struct ca_tracer *tracer;
	uint16_t number;
};

static void *
work(void *arg)
{
	struct worker *worker = arg;

	for (uint64_t i = 0; i < EACH; i++)
		add(worker->tracer, worker->number, i);
	return NULL;
}

/* Nobody drains but who finds the ring full. */
static void
test_threads_wait_for_room_and_lose_nothing(void **state)
{
	struct ca_tracer *tracer = start();
	struct worker worker[THREADS];
	pthread_t thread[THREADS];
	uint64_t next[THREADS] = { 0 };
	struct content content;

	for (unsigned i = 0; i < THREADS; i++) {
		worker[i] = (struct worker){ tracer, (uint16_t)i };
		assert_false(pthread_create(&thread[i], NULL, work, &worker[i]));
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	ca_tracer_close(tracer);
	content = content_of(tracer);
	assert_int_equal(content.count, THREADS * EACH + 1);
	for (unsigned i = 0; i < THREADS * EACH; i++)
		assert_int_equal(content.records[i].a, next[content.records[i].stream]++);
	free(content.data);
}

/* As a child by clone() would: the file is the parent's. */
static void
test_a_copy_of_the_process_does_not_write(void **state)
{
	struct ca_tracer *tracer = start();
	struct content content;
	int status;
	pid_t child;

	add(tracer, 1, 1);
	child = fork();
	if (!child) {
		add(tracer, 2, 2);
		ca_tracer_drain(tracer);
		_exit(ca_tracer_is_stopped(tracer) ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status) && !WEXITSTATUS(status));
	add(tracer, 3, 3);
	ca_tracer_close(tracer);
	content = content_of(tracer);
	assert_int_equal(content.count, 3);
	assert_int_equal(content.records[1].a, 3);
	free(content.data);
}

static void
test_a_file_that_cannot_be_made_is_an_error(void **state)
{
	struct ca_trace_start one = { .pattern = "/proc/none/x.trace",
				      .clock = { .clock_ns = clock_ns } };
	struct ca_tracer *tracer = NULL;

	errno = 77;
	assert_in_range(-ca_tracer_open(&one, &tracer), 1, 4095);
	assert_null(tracer);
	assert_int_equal(errno, 77);
}

static int
make_folder(void **state)
{
	return mkdtemp(folder) ? 0 : -1;
}

static int
remove_folder(void **state)
{
	return rmdir(folder);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_file_says_what_it_is),
		cmocka_unit_test(test_records_come_out_as_they_went_in),
		cmocka_unit_test(test_little_is_in_memory_only),
		cmocka_unit_test(test_long_pauses_are_recorded),
		cmocka_unit_test(test_threads_wait_for_room_and_lose_nothing),
		cmocka_unit_test(test_a_copy_of_the_process_does_not_write),
		cmocka_unit_test(test_a_file_that_cannot_be_made_is_an_error),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
