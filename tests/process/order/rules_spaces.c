/* SPDX-License-Identifier: MIT */
/* Rules 12 to 14 (T11 to T13): other contexts and devices, work that nobody sees, accessors that
 * are no streams. */
#include "tests/process/order/rules.h"

static CUcontext here, there;
static CUstream s, r, far;

/* Two contexts with streams of their own; the first is current. */
static void
begin(int device)
{
	here = order_context(0);
	s = order_stream(NONBLOCKING);
	r = order_stream(NONBLOCKING);
	there = order_context(device);
	far = order_stream(NONBLOCKING);
	order_enter(here);
}

/* Memory that s has not finished with is taken, and `copy` in the other context touches it. */
static void
used_from_there(int device, void (*copy)(CUdeviceptr near, CUdeviceptr distant))
{
	CUdeviceptr x, distant;

	begin(device);
	order_enter(there);
	distant = order_take(BIG);
	order_fill(distant, 8, 0, far);
	OK(cuStreamSynchronize(far));
	for (int i = 0; i < 3; i++) {
		order_enter(here);
		x = order_take(BIG);
		order_fill(x, 1, LONG / 2, s);
		x = order_again(x, BIG);
		if (i == 2)
			order_use(x, 2, r);
		if (i == 2)
			OK(cuStreamSynchronize(r));
		order_enter(there);
		copy(x, distant);
		OK(cuStreamSynchronize(far));
		order_enter(here);
		order_check(x, 8, r);
		order_give(x);
	}
	order_end();
}

static void
copy_dtod(CUdeviceptr near, CUdeviceptr distant)
{
	OK(cuMemcpyDtoDAsync_v2(near, distant, WORDS * 4, far));
}

static void
copy_any(CUdeviceptr near, CUdeviceptr distant)
{
	OK(cuMemcpyAsync(near, distant, WORDS * 4, far));
}

static void
copy_peer(CUdeviceptr near, CUdeviceptr distant)
{
	OK(cuMemcpyPeerAsync(near, here, distant, there, WORDS * 4, far));
}

static void
set_it(CUdeviceptr near, CUdeviceptr distant)
{
	OK(cuMemsetD32Async(near, 8, WORDS, far));
}

static void
fill_as_a_peer(CUdeviceptr near, CUdeviceptr distant)
{
	cuCtxEnablePeerAccess(here, 0); /* the first time; then it is enabled already */
	order_fill(near, 8, 0, far);
}

#define FROM_THERE(device, copy)                                                                   \
	static void copy##_##device(void)                                                          \
	{                                                                                          \
		used_from_there(device, copy);                                                     \
	}

FROM_THERE(0, copy_dtod)
FROM_THERE(1, copy_dtod)
FROM_THERE(0, copy_any)
FROM_THERE(1, copy_any)
FROM_THERE(0, copy_peer)
FROM_THERE(1, copy_peer)
FROM_THERE(0, set_it)
FROM_THERE(1, fill_as_a_peer)

/* A copy of the other context still reads the block when it is freed here. `only`: it was filled
 * from there, too, so that nothing of this context is newer than the block. */
static void
still_read_from_there(int device, bool only)
{
	CUdeviceptr x, distant;

	begin(device);
	order_enter(there);
	distant = order_take(BIG);
	for (int i = 0; i < 4; i++) {
		order_enter(here);
		x = order_take(BIG);
		if (!only)
			order_fill(x, 5, 0, s);
		OK(cuStreamSynchronize(s));
		order_enter(there);
		order_fill(distant, only ? 5 : 0, LONG / 2, far);
		if (only) {
			OK(cuMemcpyDtoDAsync_v2(x, distant, WORDS * 4, far));
			order_fill(distant, 0, 0, far);
		}
		if (i % 2)
			OK(cuMemcpyDtoDAsync_v2(distant, x, WORDS * 4, far));
		else
			OK(cuMemcpyPeerAsync(distant, there, x, here, WORDS * 4, far));
		order_enter(here);
		x = order_again(x, BIG);
		order_use(x, 6, s);
		order_enter(there);
		order_check(distant, 5, far);
		order_enter(here);
		order_give(x);
	}
	order_enter(there);
	order_end();
	order_enter(here);
	order_end();
}

static void
still_read_by_another_context(void)
{
	still_read_from_there(0, false);
}

static void
still_read_by_another_device(void)
{
	still_read_from_there(1, false);
}

static void
read_by_another_context_only(void)
{
	still_read_from_there(0, true);
}

/* The context's making is all that is seen of it before its default stream uses the memory. */
static void
made_for_graphics(CUresult (*create)(CUcontext *context, unsigned flags, CUdevice device))
{
	void *copied;
	CUcontext graphics;
	CUdeviceptr x;

	here = order_start();
	OK(cuMemAllocHost_v2(&copied, WORDS * 4));
	x = order_take(BIG);
	order_use(x, 5, NULL);
	OK(cuCtxSynchronize());
	OK(create(&graphics, 0, 0));
	order_fill((CUdeviceptr)copied, 0, LONG, NULL);
	OK(cuMemcpyDtoHAsync_v2(copied, x, WORDS * 4, NULL));
	order_enter(here);
	x = order_again(x, BIG);
	order_use(x, 6, NULL);
	order_give(x);
	order_end();
	order_enter(graphics);
	OK(cuCtxSynchronize());
	EXPECT(*(uint32_t *)copied == 5);
}

static void
made_for_graphics_by_the_oldest_name(void)
{
	made_for_graphics(cuGLCtxCreate);
}

static void
made_for_graphics_by_its_name(void)
{
	made_for_graphics(cuGLCtxCreate_v2);
}

/* NULL is the legacy stream of whichever context is current. */
static void
null_is_a_stream_of_the_current_context(void)
{
	CUdeviceptr x;

	begin(0);
	for (int i = 0; i < 4; i++) {
		order_enter(here);
		x = order_take(BIG);
		order_fill(x, 1, LONG / 2, NULL);
		x = order_again(x, BIG);
		order_enter(there);
		if (i % 2)
			OK(cuMemsetD32Async(x, 3, WORDS, NULL));
		else
			OK(cuMemsetD8Async(x, 3, WORDS * 4, NULL));
		OK(cuStreamSynchronize(NULL));
		order_enter(here);
		order_check(x, i % 2 ? 3 : 0x03030303, r);
		order_give(x);
	}
	order_end();
}

/* A stream handle works whichever context is current. */
static void
streams_are_used_from_elsewhere(void)
{
	CUdeviceptr x;

	begin(0);
	for (int i = 0; i < 3; i++) {
		x = order_take(BIG);
		OK(cuCtxSetCurrent(there));
		OK(cuMemsetD32Async(x, 1, WORDS, s));
		OK(cuMemcpyDtoDAsync_v2(x + MIB, x, WORDS * 4, s));
		OK(cuCtxSetCurrent(here));
		order_fill(x, 1, LONG / 4, s);
		x = order_again(x, BIG);
		OK(cuCtxSetCurrent(there));
		OK(cuMemsetD32Async(x, 2, WORDS, r));
		OK(cuMemsetD32Async(x + MIB, 2, WORDS, r));
		OK(cuCtxSetCurrent(here));
		order_check(x, 2, r);
		order_give(x);
	}
	order_end();
}

/* ----------------------------------------------------------- rendezvous --- */
static volatile uint32_t *word;
static CUdeviceptr mine, theirs; /* memory of either context, with no work in progress */
static CUgraphExec signal_graph;

static CUdeviceptr
used_memory(CUstream stream)
{
	CUdeviceptr x = order_take(BIG);

	order_fill(x, 8, 0, stream);
	OK(cuStreamSynchronize(stream));
	return x;
}

static void
signal_by_batch(void)
{
	CUstreamBatchMemOpParams op = { .pad = { 0 } };

	op.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
	op.writeValue.address = (CUdeviceptr)(uintptr_t)word;
	op.writeValue.value = 1;
	OK(cuStreamBatchMemOp_v2(far, 1, &op, 0));
}

static void
signal_by_graph(void)
{
	OK(cuGraphLaunch(signal_graph, far));
}

static void
signal_behind_peer_copy(void)
{
	OK(cuMemcpyPeerAsync(theirs, there, mine, here, WORDS * 4, far));
	order_signal(word, 1, far);
}

static void
signal_behind_copy(void)
{
	OK(cuMemcpyAsync(theirs, mine, WORDS * 4, far));
	order_signal(word, 1, far);
}

static void
make_signal_graph(void)
{
	CUgraph graph;

	OK(cuStreamBeginCapture_v2(far, CU_STREAM_CAPTURE_MODE_RELAXED));
	order_signal(word, 1, far);
	OK(cuStreamEndCapture(far, &graph));
	OK(cuGraphInstantiateWithFlags(&signal_graph, graph, 0));
}

/*
 * Each context has one stream. That of the first waits for the other's, after memory that it had
 * not finished with was taken again; and what it waits for might touch this memory, for all that
 * can be seen of it.
 */
static void
meet(int device, void (*signal)(void))
{
	CUdeviceptr x;

	here = order_context(0);
	s = order_stream(NONBLOCKING);
	word = order_word();
	mine = used_memory(s);
	there = order_context(device);
	far = order_stream(NONBLOCKING);
	theirs = used_memory(far);
	make_signal_graph();
	order_enter(here);
	x = order_take(BIG);
	order_fill(x, 1, 0, s);
	x = order_again(x, BIG);
	order_fill(x, 2, 0, s);
	order_wait(word, 1, s);
	order_enter(there);
	signal();
	OK(cuStreamSynchronize(far));
	order_end();
	order_enter(here);
	order_check(x, 2, s);
	order_end();
}

#define MEET(device, signal)                                                                       \
	static void meet_##signal(void)                                                            \
	{                                                                                          \
		meet(device, signal);                                                              \
	}

MEET(0, signal_by_batch)
MEET(1, signal_by_graph)
MEET(1, signal_behind_peer_copy)
MEET(0, signal_behind_copy)

/* Another context waits for the host, which asks for a range first. */
static void
range_beside_another_context(void)
{
	CUdeviceptr x, base;
	size_t bytes;

	here = order_context(0);
	s = order_stream(NONBLOCKING);
	word = order_word();
	x = order_take(BIG);
	order_fill(x, 1, 0, s);
	x = order_again(x, BIG);
	there = order_context(1);
	far = order_stream(NONBLOCKING);
	used_memory(far);
	order_wait(word, 1, far);
	order_enter(here);
	OK(cuMemGetAddressRange_v2(&base, &bytes, x));
	EXPECT(base == x);
	*word = 1;
	order_end();
	order_enter(there);
	order_end();
}

/* --------------------------------------------------- work that nobody sees --- */
static void
private_table_submits(void)
{
	const struct simb_private_table *table;
	const void *found;
	CUuuid id;
	CUdeviceptr x;

	memcpy(id.bytes, SIMB_PRIVATE_TABLE_ID, sizeof(id.bytes));
	order_start();
	s = order_stream(NONBLOCKING);
	r = order_stream(NONBLOCKING);
	x = order_take(BIG);
	order_fill(x, 1, LONG / 4, s);
	x = order_again(x, BIG);
	OK(cuGetExportTable(&found, &id));
	table = found;
	for (int i = 0; i < 6; i++) {
		order_fill(x + MIB, 1, LONG / 4, r);
		OK(table->fill(x, 1, WORDS, i % 2 ? s : r));
		if (i % 3 == 0)
			OK(table->fill(x + MIB, 1, WORDS, r));
		x = order_again(x, BIG);
		order_use(x, 2, i % 2 ? r : s);
		order_use(x + MIB, 2, i % 2 ? r : s);
		x = order_again(x, BIG);
		OK(table->fill(x, 3, WORDS, i % 2 ? r : s));
		order_check(x, 3, i % 2 ? r : s);
		x = order_again(x, BIG);
	}
	order_end();
}

/* The block has been in the thread's hands before, and nobody else was seen to use it since it was
 * handed out: only the space knows. */
static void
private_table_submits_after_a_warm_up(void)
{
	const struct simb_private_table *table;
	const void *found;
	CUuuid id;
	CUdeviceptr x;

	memcpy(id.bytes, SIMB_PRIVATE_TABLE_ID, sizeof(id.bytes));
	order_start();
	s = order_stream(NONBLOCKING);
	r = order_stream(NONBLOCKING);
	order_give(order_again(order_take(MIB), MIB));
	OK(cuGetExportTable(&found, &id));
	table = found;
	for (int i = 0; i < 4; i++) {
		x = order_take(MIB);
		OK(table->fill(x, 1, WORDS, s));
		x = order_again(x, MIB);
		order_use(x, 2, r);
		OK(cuCtxSynchronize_v2(NULL));
		x = order_again(x, MIB);
		OK(table->fill(x, 3, WORDS, r));
		order_give(x);
	}
	order_end();
}

/* ------------------------------------------------------------- accessors --- */
/* Whoever gets at the memory by this road writes it at once, as a network card would. */
static void
accessed(CUdeviceptr x)
{
	uint32_t *words = (uint32_t *)(uintptr_t)x;

	for (int i = 0; i < WORDS; i++)
		words[i] = 0xacce55;
}

static void
accessor_after_reuse(void (*access)(CUdeviceptr x), size_t bytes)
{
	CUdeviceptr x;

	order_start();
	s = order_stream(NONBLOCKING);
	for (int i = 0; i < 3; i++) {
		x = order_take(bytes);
		order_fill(x, 1, LONG, s);
		x = order_again(x, bytes);
		access(x);
		accessed(x);
		OK(cuStreamSynchronize(s));
		for (int n = 0; n < WORDS; n++)
			EXPECT(((uint32_t *)(uintptr_t)x)[n] == 0xacce55);
		order_give(x);
	}
	order_end();
}

static void
access_ipc(CUdeviceptr x)
{
	CUipcMemHandle handle;

	OK(cuIpcGetMemHandle(&handle, x));
}

static void
access_sync_memops(CUdeviceptr x)
{
	unsigned yes = 1;

	OK(cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, x));
}

static void
access_buffer_id(CUdeviceptr x)
{
	unsigned long long id;

	OK(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, x));
}

static void
access_buffer_id_among_others(CUdeviceptr x)
{
	CUpointer_attribute names[] = { CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
					CU_POINTER_ATTRIBUTE_BUFFER_ID };
	unsigned long long id;
	unsigned type;
	void *values[] = { &type, &id };

	OK(cuPointerGetAttributes(2, names, values, x));
}

#define ACCESSOR(access)                                                                           \
	static void after_##access(void)                                                           \
	{                                                                                          \
		accessor_after_reuse(access, BIG);                                                 \
	}

ACCESSOR(access_ipc)
ACCESSOR(access_sync_memops)
ACCESSOR(access_buffer_id)
ACCESSOR(access_buffer_id_among_others)

/* ---- a thread that goes from context to context */

enum { IN_TURN = 3, TURNS = 24, PIECE = MIB / 2 };

static CUdeviceptr
take_in(CUcontext context)
{
	CUdeviceptr x = order_take(PIECE);
	CUcontext of;

	OK(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_CONTEXT, x));
	EXPECT(of == context);
	return x;
}

/* Memory is of the context that is current, whatever a thread keeps of others. It is freed while
 * another one is, and work there goes on meanwhile. */
static void
contexts_in_turn(void)
{
	CUcontext contexts[IN_TURN];
	CUstream streams[IN_TURN];
	CUdeviceptr last = 0;

	for (int i = 0; i < IN_TURN; i++) {
		contexts[i] = order_context(i % 2);
		streams[i] = order_stream(NONBLOCKING);
	}
	for (int turn = 0; turn < TURNS; turn++) {
		int i = turn % IN_TURN;
		CUdeviceptr x;

		order_enter(contexts[i]);
		x = take_in(contexts[i]);
		order_use(x, (uint32_t)turn + 1, streams[i]);
		if (last)
			order_give(last);
		last = x;
		x = take_in(contexts[i]);
		order_give(x);
	}
	order_give(last);
	OK(cuCtxDestroy_v2(contexts[0]));
	for (int i = 1; i < IN_TURN; i++) {
		order_enter(contexts[i]);
		last = take_in(contexts[i]);
		order_use(last, 7, streams[i]);
		order_end();
	}
}

const struct order_case rules_spaces[] = {
	{ "t11_copied_to_by_another_context", copy_dtod_0 },
	{ "t11_copied_to_by_another_device", copy_dtod_1 },
	{ "t11_copied_to_by_another_context_without_a_kind", copy_any_0 },
	{ "t11_copied_to_by_another_device_without_a_kind", copy_any_1 },
	{ "t11_peer_copy_between_contexts", copy_peer_0 },
	{ "t11_peer_copy_between_devices", copy_peer_1 },
	{ "t11_set_by_another_context", set_it_0 },
	{ "t11_filled_by_a_peer_enabled_later", fill_as_a_peer_1 },
	{ "t11_still_read_by_another_context", still_read_by_another_context },
	{ "t11_still_read_by_another_device", still_read_by_another_device },
	{ "t11_still_read_by_another_context_only", read_by_another_context_only },
	{ "t11_null_is_a_stream_of_the_current_context", null_is_a_stream_of_the_current_context },
	{ "t11_streams_are_used_from_elsewhere", streams_are_used_from_elsewhere },
	{ "t11_a_batch_ends_the_wait_of_another_context", meet_signal_by_batch },
	{ "t11_a_graph_ends_the_wait_of_another_device", meet_signal_by_graph },
	{ "t11_a_peer_copy_goes_before_the_end_of_a_wait", meet_signal_behind_peer_copy },
	{ "t11_a_copy_goes_before_the_end_of_a_wait", meet_signal_behind_copy },
	{ "t11_contexts_in_turn", contexts_in_turn },
	{ "t11_still_read_by_a_context_for_graphics", made_for_graphics_by_its_name },
	{ "t11_still_read_by_a_context_for_graphics_of_cuda_2",
	  made_for_graphics_by_the_oldest_name },
	{ "t12_private_table_submits", private_table_submits },
	{ "t12_private_table_submits_after_a_warm_up", private_table_submits_after_a_warm_up },
	{ "t13_export_to_another_process", after_access_ipc },
	{ "t13_synchronous_memory_operations", after_access_sync_memops },
	{ "t13_buffer_id", after_access_buffer_id },
	{ "t13_buffer_id_among_other_attributes", after_access_buffer_id_among_others },
	{ "t13_address_range_while_another_context_waits", range_beside_another_context },
	{ NULL, NULL },
};
