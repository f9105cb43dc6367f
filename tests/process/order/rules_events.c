/* SPDX-License-Identifier: MIT */
/* Rules 8 and 9 (T8, T9): events that teach nothing, and launches that do not wait for their
 * predecessor. */
#include "tests/process/order/rules.h"

static CUstream s, r, q;
static CUevent event;
static CUdeviceptr other;

static void
begin(void)
{
	order_start();
	s = order_stream(NONBLOCKING);
	r = order_stream(NONBLOCKING);
	q = order_stream(NONBLOCKING);
	event = order_event();
	other = order_take(BIG);
}

/* The memory that s has just filled goes to r, which has just waited for the event. */
static void
hand_over(CUdeviceptr x)
{
	OK(cuStreamWaitEvent(r, event, 0));
	x = order_again(x, BIG);
	order_use(x, 2, r);
	x = order_again(x, BIG);
	order_use(x, 3, s);
	order_give(x);
	order_end();
}

static void
at_the_start_of_a_kernel(CUlaunchAttributeID id)
{
	CUlaunchAttribute attribute = { .id = id };

	for (int i = 0; i < 3; i++) {
		CUdeviceptr x = order_take(BIG);

		attribute.value.programmaticEvent.event = event;
		if (id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT) {
			attribute.value.launchCompletionEvent.event = event;
			attribute.value.launchCompletionEvent.flags = 0;
		}
		if (i)
			OK(cuEventRecord(event, s));
		order_fill_with(&attribute, x, 1, LONG, s);
		hand_over(x);
	}
}

static void
programmatic_event(void)
{
	begin();
	at_the_start_of_a_kernel(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT);
}

static void
launch_completion_event(void)
{
	begin();
	at_the_start_of_a_kernel(CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT);
}

/* The event was recorded behind the fill, and then, before anybody waited for it, elsewhere. */
static void
recorded_anew_elsewhere(void)
{
	CUdeviceptr x;

	begin();
	x = order_take(BIG);
	order_fill(x, 1, LONG, s);
	OK(cuEventRecord(event, s));
	OK(cuEventRecord(event, q));
	hand_over(x);
	x = order_take(BIG);
	order_fill(x, 1, LONG, s);
	OK(cuEventRecord(event, s));
	OK(cuEventRecordWithFlags(event, q, 0));
	hand_over(x);
	x = order_take(BIG);
	order_fill(x, 1, LONG, s);
	OK(cuEventRecord(event, s));
	OK(cuEventRecord_ptsz(event, NULL));
	hand_over(x);
}

static void
destroyed_and_made_anew(void)
{
	CUdeviceptr x;

	begin();
	for (int i = 0; i < 4; i++) {
		x = order_take(BIG);
		order_fill(x, 1, LONG / 2, s);
		OK(cuEventRecord(event, s));
		OK(cuEventDestroy_v2(event));
		event = order_event();
		if (i % 2)
			OK(cuEventRecord(event, q));
		hand_over(x);
	}
}

static void
a_wait_that_was_refused(void)
{
	CUdeviceptr x;

	begin();
	x = order_take(BIG);
	order_fill(x, 1, LONG, s);
	OK(cuEventRecord(event, s));
	EXPECT(cuStreamWaitEvent(r, event, 0x80) != CUDA_SUCCESS);
	x = order_again(x, BIG);
	order_use(x, 2, r);
	order_end();
}

static void
a_record_that_was_refused(void)
{
	CUcontext here;
	CUstream there;
	CUdeviceptr x;

	begin();
	x = order_take(BIG);
	OK(cuEventRecord(event, q));
	OK(cuCtxGetCurrent(&here));
	order_context(0);
	there = order_stream(NONBLOCKING);
	EXPECT(cuEventRecord(event, there) != CUDA_SUCCESS);
	order_enter(here);
	order_fill(x, 1, LONG, s);
	hand_over(x);
}

/* The event is done, as it was never recorded; the stream whose record was refused is not. */
static void
a_query_after_a_record_that_was_refused(void)
{
	CUstream there;
	CUdeviceptr x;

	begin();
	order_context(0);
	there = order_stream(NONBLOCKING);
	r = order_stream(NONBLOCKING);
	for (int i = 0; i < 4; i++) {
		x = order_take(BIG);
		order_fill(x, 1, LONG / 4, there);
		EXPECT(cuEventRecord(event, there) != CUDA_SUCCESS);
		if (i % 2)
			OK(cuEventSynchronize(event));
		else
			OK(cuEventQuery(event));
		x = order_again(x, BIG);
		order_use(x, 2, r);
		order_give(x);
		OK(cuCtxSynchronize_v2(NULL));
	}
	order_end();
}

static void
work_after_the_record(void)
{
	CUdeviceptr x;

	begin();
	for (int i = 0; i < 4; i++) {
		x = order_take(BIG);
		order_fill(x, 1, LONG / 4, s);
		OK(cuEventRecord(event, s));
		order_fill(x, 2, LONG / 2, s);
		hand_over(x);
	}
}

/* What a wait teaches, and what it does not: the wait comes before the record that would help. */
static void
wait_before_the_record(void)
{
	CUdeviceptr x;

	begin();
	for (int i = 0; i < 4; i++) {
		x = order_take(BIG);
		order_fill(x, 1, LONG / 2, s);
		OK(cuStreamWaitEvent(r, event, 0));
		OK(cuEventRecord(event, s));
		x = order_again(x, BIG);
		order_use(x, 2, r);
		order_give(x);
	}
	order_end();
}

/* Order goes through a third stream, and only as far as that stream had come. */
static void
order_through_a_third_stream(void)
{
	CUevent second;
	CUdeviceptr x;

	begin();
	second = order_event();
	for (int i = 0; i < 4; i++) {
		x = order_take(BIG);
		order_fill(x, 1, LONG / 4, s);
		OK(cuEventRecord(event, s));
		if (i % 2) { /* q records first: nothing of s is behind it */
			OK(cuEventRecord(second, q));
			OK(cuStreamWaitEvent(q, event, 0));
		} else {
			OK(cuStreamWaitEvent(q, event, 0));
			OK(cuEventRecord(second, q));
		}
		OK(cuStreamWaitEvent(r, second, 0));
		x = order_again(x, BIG);
		order_use(x, 2, r);
		order_give(x);
	}
	order_end();
}

/* The nodes of a graph record the event at every launch, in the launching stream. */
static void
recorded_by_a_graph(void)
{
	CUgraphNode node;
	CUgraphExec exec;
	CUgraph graph;
	CUdeviceptr x;

	begin();
	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphAddEventRecordNode(&node, graph, NULL, 0, event));
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	for (int i = 0; i < 3; i++) {
		x = order_take(BIG);
		order_fill(x, 1, LONG / 2, s);
		OK(cuEventRecord(event, s));
		OK(cuGraphLaunch(exec, q));
		hand_over(x);
	}
}

/* As above, with the graph from a capture in which the event was recorded for the outside. */
static void
recorded_in_a_capture(void)
{
	CUgraph graph;
	CUdeviceptr x;

	begin();
	for (int i = 0; i < 3; i++) {
		x = order_take(BIG);
		order_fill(x, 1, LONG / 2, s);
		OK(cuEventRecord(event, s));
		OK(cuStreamBeginCapture_v2(q, CU_STREAM_CAPTURE_MODE_RELAXED));
		OK(cuEventRecord(event, q));
		OK(cuStreamEndCapture(q, &graph));
		OK(cuGraphDestroy(graph));
		cuStreamWaitEvent(r, event, 0); /* refused, most likely */
		x = order_again(x, BIG);
		order_use(x, 2, r);
		order_give(x);
	}
	order_end();
}

/* The wait for it makes the stream part of the capture; its work afterwards comes after nothing. */
static void
recorded_in_a_capture_that_forks(void)
{
	CUevent join;
	CUgraph graph;
	CUdeviceptr x;

	begin();
	join = order_event();
	order_fill(other, 1, 0, r);
	OK(cuCtxSynchronize_v2(NULL));
	for (int i = 0; i < 3; i++) {
		x = order_take(BIG);
		order_fill(x, 1, LONG / 2, s);
		OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
		OK(cuEventRecord(event, s));
		OK(cuStreamWaitEvent(r, event, 0));
		OK(cuEventRecord(join, r));
		OK(cuStreamWaitEvent(s, join, 0));
		OK(cuStreamEndCapture(s, &graph));
		OK(cuGraphDestroy(graph));
		x = order_again(x, BIG);
		order_use(x, 2, r);
		order_give(x);
		OK(cuCtxSynchronize_v2(NULL));
	}
	order_end();
}

static void
recorded_for_the_whole_context(void)
{
	CUcontext context;
	CUdeviceptr x;

	begin();
	OK(cuCtxGetCurrent(&context));
	for (int i = 0; i < 3; i++) {
		x = order_take(BIG);
		order_fill(x, 1, LONG / 4, s);
		OK(cuEventRecord(event, s));
		OK(cuCtxRecordEvent(context, event));
		order_fill(x, 2, LONG / 4, s);
		hand_over(x);
	}
}

/* The waiting stream dies; one with its handle has waited for nothing. */
static void
the_waiting_stream_was_another(void)
{
	CUdeviceptr x;

	begin();
	for (int i = 0; i < 4; i++) {
		x = order_take(BIG);
		order_fill(x, 1, LONG / 2, s);
		OK(cuEventRecord(event, s));
		OK(cuStreamWaitEvent(r, event, 0));
		OK(cuStreamDestroy_v2(r));
		r = order_stream(NONBLOCKING);
		x = order_again(x, BIG);
		order_use(x, 2, r);
		order_give(x);
	}
	order_end();
}

/* ---------------------------------------------------- programmatic launches --- */
static void
fill_early(CUdeviceptr memory, uint32_t value, uint64_t spin_us, CUstream stream)
{
	CUlaunchAttribute attribute = {
		.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
	};

	attribute.value.programmaticStreamSerializationAllowed = 1;
	order_fill_with(&attribute, memory, value, spin_us, stream);
}

/* The kernel in front is the old user, or stands behind it. */
static void
programmatic_launch_on_reused_memory(void)
{
	CUdeviceptr x;

	begin();
	for (int i = 0; i < 8; i++) {
		x = order_take(BIG);
		order_fill(x, 1, LONG / 4, s);
		x = order_again(x, BIG);
		if (i & 1)
			fill_early(other, 2, 0, s);
		if (i & 2)
			order_fill(other, 2, 0, s);
		fill_early(x, 3, 0, s);
		order_check(x, 3, s);
		order_give(x);
	}
	order_end();
}

/* As above, and the old user is itself a programmatic launch, or two of them. */
static void
programmatic_launches_behind_one_another(void)
{
	CUdeviceptr x, y;

	begin();
	for (int i = 0; i < 4; i++) {
		x = order_take(BIG);
		y = order_take(BIG);
		order_fill(other, 1, 100, s);
		fill_early(x, 1, LONG / 4, s);
		fill_early(y, 1, LONG / 4, s);
		x = order_again(x, BIG);
		fill_early(x, 2, 0, s);
		y = order_again(y, BIG);
		fill_early(y, 2, 0, s);
		order_check(x, 2, s);
		order_check(y, 2, s);
		order_give(x);
		order_give(y);
	}
	order_end();
}

/* While only one stream exists, where memory is handed out most freely. */
static void
programmatic_launch_on_the_only_stream(void)
{
	CUdeviceptr x, y;

	order_start();
	s = order_stream(NONBLOCKING);
	y = order_take(BIG);
	for (int i = 0; i < 8; i++) {
		x = order_take(BIG);
		order_fill(x, 1, LONG / 8, s);
		x = order_again(x, BIG);
		fill_early(x, 2, LONG / 8, s);
		fill_early(y, 2, 0, s);
		order_check(x, 2, s);
		x = order_again(x, BIG);
		fill_early(y, 3, 0, s);
		fill_early(x, 3, 0, s);
		order_check(x, 3, s);
		order_give(x);
	}
	order_end();
}

/* The attribute in a list with others, and said twice. */
static void
programmatic_attribute_among_others(void)
{
	CUlaunchAttribute attributes[4] = { 0 };
	uint64_t words = WORDS, value = 2, spin_us = 0;
	CUlaunchConfig config = { 1, 1, 1, 1, 1, 1, 0, NULL, attributes, 4 };
	CUdeviceptr x;
	void *args[] = { &x, &words, &value, &spin_us };

	begin();
	config.hStream = s;
	attributes[0].id = CU_LAUNCH_ATTRIBUTE_IGNORE;
	for (int i = 1; i < 4; i++) {
		attributes[i].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
		attributes[i].value.programmaticStreamSerializationAllowed = 1;
	}
	attributes[2].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT;
	attributes[2].value.programmaticEvent.event = event;
	attributes[2].value.programmaticEvent.flags = 0;
	attributes[2].value.programmaticEvent.triggerAtBlockStart = 0;
	for (int i = 0; i < 4; i++) {
		x = order_take(BIG);
		order_fill(x, 1, LONG / 4, s);
		x = order_again(x, BIG);
		OK(cuLaunchKernelEx(&config, order_kernel("sim_fill"), args, NULL));
		EXPECT(attributes[1].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
		order_check(x, 2, s);
		order_give(x);
	}
	order_end();
}

/* From r to s, where it was exposed: the guard's wait must hold the early kernel too. */
static void
programmatic_launch_behind_a_guard(void)
{
	CUdeviceptr x;

	begin();
	for (int i = 0; i < 4; i++) {
		x = order_take(BIG);
		order_fill(x, 1, LONG / 4, s);
		x = order_again(x, BIG);
		order_fill(other, 1, LONG / 4, r);
		fill_early(x, 2, 0, r);
		fill_early(x + MIB, 2, 0, r);
		order_check(x, 2, r);
		x = order_again(x, BIG);
		fill_early(x, 3, 0, s);
		order_check(x, 3, s);
		order_give(x);
	}
	order_end();
}

/* Each stream has work, and none is another thread's: as much as can be is handed out unfinished.
 */
static void
begin_with_legacy(void)
{
	order_start();
	s = order_stream(BLOCKING);
	r = order_stream(BLOCKING);
	other = order_take(BIG);
	order_fill(other, 1, 0, s);
	order_fill(other, 1, 0, NULL);
	order_fill(other, 1, 0, r);
	OK(cuCtxSynchronize_v2(NULL));
}

/*
 * The legacy stream's barrier lies between the old user and the early kernel, on either side of it;
 * nothing else does. The kernel in front of the early one is on the other side of the barrier, or
 * in its own stream with the barrier behind it.
 */
static void
programmatic_launch_behind_the_legacy_stream(void)
{
	CUdeviceptr x;

	begin_with_legacy();
	for (int i = 0; i < 8; i++) {
		CUstream old = i & 1 ? s : NULL, early = i & 1 ? NULL : s;

		x = order_take(BIG);
		if (i & 2)
			order_fill(other, 1, 0, early);
		order_fill(x, 1, LONG / 4, old);
		x = order_again(x, BIG);
		if (i & 4)
			fill_early(other, 2, 0, early);
		fill_early(x, 2, 0, early);
		order_check(x, 2, early);
		order_give(x);
	}
	order_end();
}

/* From one blocking stream to another, with the legacy stream's work between them, or behind. */
static void
programmatic_launch_through_the_legacy_stream(void)
{
	CUdeviceptr x;

	begin_with_legacy();
	for (int i = 0; i < 8; i++) {
		CUstream early = i & 1 ? s : r;

		x = order_take(BIG);
		order_fill(x, 1, LONG / 4, s);
		if (i & 2)
			fill_early(other, 1, 0, NULL);
		else
			order_fill(other, 1, 0, NULL);
		x = order_again(x, BIG);
		if (i & 4)
			order_fill(x, 2, LONG / 8, NULL);
		x = order_again(x, BIG);
		fill_early(x, 3, 0, early);
		order_check(x, 3, early);
		x = order_again(x, BIG);
		fill_early(x, 4, 0, NULL);
		order_check(x, 4, NULL);
		order_give(x);
	}
	order_end();
}

const struct order_case rules_events[] = {
	{ "t8_programmatic_event", programmatic_event },
	{ "t8_launch_completion_event", launch_completion_event },
	{ "t8_recorded_anew_elsewhere", recorded_anew_elsewhere },
	{ "t8_destroyed_and_made_anew", destroyed_and_made_anew },
	{ "t8_a_wait_that_was_refused", a_wait_that_was_refused },
	{ "t8_a_record_that_was_refused", a_record_that_was_refused },
	{ "t8_a_query_after_a_record_that_was_refused", a_query_after_a_record_that_was_refused },
	{ "t8_work_after_the_record", work_after_the_record },
	{ "t8_wait_before_the_record", wait_before_the_record },
	{ "t8_order_through_a_third_stream", order_through_a_third_stream },
	{ "t8_recorded_by_a_graph", recorded_by_a_graph },
	{ "t8_recorded_in_a_capture", recorded_in_a_capture },
	{ "t8_recorded_in_a_capture_that_forks", recorded_in_a_capture_that_forks },
	{ "t8_recorded_for_the_whole_context", recorded_for_the_whole_context },
	{ "t8_the_waiting_stream_was_another", the_waiting_stream_was_another },
	{ "t9_programmatic_launch_on_reused_memory", programmatic_launch_on_reused_memory },
	{ "t9_programmatic_launches_behind_one_another", programmatic_launches_behind_one_another },
	{ "t9_programmatic_launch_on_the_only_stream", programmatic_launch_on_the_only_stream },
	{ "t9_programmatic_attribute_among_others", programmatic_attribute_among_others },
	{ "t9_programmatic_launch_behind_a_guard", programmatic_launch_behind_a_guard },
	{ "t9_programmatic_launch_behind_the_legacy_stream",
	  programmatic_launch_behind_the_legacy_stream },
	{ "t9_programmatic_launch_through_the_legacy_stream",
	  programmatic_launch_through_the_legacy_stream },
	{ NULL, NULL },
};
