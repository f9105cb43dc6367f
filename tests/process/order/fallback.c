/* SPDX-License-Identifier: MIT */
/*
 * What restricts reuse to finished memory: each case does one such thing twice over, while memory
 * that was handed out unfinished is in use, and goes on as if nothing had happened.
 */
#include <dlfcn.h>

#include "tests/process/order/order.h"

static CUstream s;
static CUdeviceptr x;
static CUcontext context;

/* One stream, whose unfinished memory is in the program's hands again. */
static void
begin(void)
{
	context = order_start();
	s = order_stream(NONBLOCKING);
	x = order_take(BIG);
	order_fill(x, 1, LONG, s);
	x = order_again(x, BIG);
}

/* Memory goes round on two streams that are not ordered. */
static void
go_on(void)
{
	CUstream r = order_stream(NONBLOCKING);

	for (uint32_t i = 0; i < 6; i++) {
		order_use(x, i, i % 2 ? s : r);
		x = order_again(x, BIG);
	}
	order_end();
}

static void
unseen_call(void)
{
	CUdriverProcAddressQueryResult status;
	simb_private_fill *fill = NULL;
	void *found = NULL;

	begin();
	OK(cuGetProcAddress_v2(SIMB_FUTURE_NAME, &found, 13000, 0, &status));
	EXPECT(found);
	memcpy(&fill, &found, sizeof(fill));
	for (int i = 0; i < 2; i++) {
		OK(fill(x, 7, WORDS, order_stream(NONBLOCKING)));
		x = order_again(x, BIG);
	}
	go_on();
}

/* While a stream captures that was begun by a name of a driver yet to come, memory goes round that
 * only a mark over all could tell finished. The capture stays as it is. */
static void
unseen_capture(void)
{
	CUdriverProcAddressQueryResult status;
	simb_future_begin_capture *begin_capture = NULL;
	CUstream q, user[3];
	CUgraph graph = NULL;
	unsigned long long id;
	CUdeviceptr none;
	void *found = NULL;

	begin();
	q = order_stream(NONBLOCKING);
	order_use(x, 1, q);
	OK(cuStreamSynchronize(q));
	for (int i = 0; i < 3; i++)
		user[i] = order_stream(NONBLOCKING);
	OK(cuGetProcAddress_v2(SIMB_FUTURE_CAPTURE_NAME, &found, 13000, 0, &status));
	EXPECT(found);
	memcpy(&begin_capture, &found, sizeof(begin_capture));
	OK(begin_capture(q, CU_STREAM_CAPTURE_MODE_RELAXED));
	for (uint32_t i = 0; i < 12; i++) {
		CUdeviceptr y = order_take(BIG);

		order_fill(y, i, LONG, user[i % 3]);
		OK(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, y));
		order_give(y);
	}
	EXPECT(cuMemAlloc_v2(&none, 1ull << 40) == CUDA_ERROR_OUT_OF_MEMORY);
	order_fill(x, 3, 0, q);
	OK(cuStreamEndCapture(q, &graph));
	EXPECT(graph);
	OK(cuGraphDestroy(graph));
	go_on();
}

static simb_private_fill *
unseen_fill(void)
{
	const struct simb_private_table *table;
	const void *found;
	CUuuid id;

	memcpy(id.bytes, SIMB_PRIVATE_TABLE_ID, sizeof(id.bytes));
	OK(cuGetExportTable(&found, &id));
	table = found;
	return table->fill;
}

static void
private_table(void)
{
	begin();
	for (int i = 0; i < 2; i++) {
		OK(unseen_fill()(x, 7, WORDS, order_stream(NONBLOCKING)));
		x = order_again(x, BIG);
	}
	go_on();
}

/* Unseen work uses memory that is freed while a capture forbids a mark behind it: no
 * synchronisation before that work tells of it, no end of seen work, and no allocation that finds
 * no memory. */
static void
unseen_in_a_capture(void)
{
	simb_private_fill *fill;
	CUdeviceptr used, other, none;
	CUstream unseen, q;
	CUgraph graph;

	begin();
	fill = unseen_fill();
	unseen = order_stream(NONBLOCKING);
	q = order_stream(NONBLOCKING);
	for (uint32_t i = 0; i < 6; i++) {
		order_give(order_take(MIB));
		other = order_take(4 * WORDS);
		used = order_take(4 * WORDS);
		OK(cuCtxSynchronize());
		x = order_again(x, BIG);
		OK(cuStreamBeginCapture_v2(q, CU_STREAM_CAPTURE_MODE_RELAXED));
		OK(fill(used, 7, WORDS, unseen));
		order_give(used);
		order_use(other, i, s);
		OK(cuStreamSynchronize(s));
		if (i % 2)
			EXPECT(cuMemAlloc_v2(&none, 1ull << 40) == CUDA_ERROR_OUT_OF_MEMORY);
		OK(cuStreamEndCapture(q, &graph));
		OK(cuGraphDestroy(graph));
		order_use(other, i, s);
		OK(cuStreamSynchronize(s));
		used = order_take(4 * WORDS);
		order_use(used, i, s);
		OK(cuStreamSynchronize(s));
		order_give(used);
		order_give(other);
	}
	go_on();
}

/* Where there are no marks, finished memory comes back at the end of the memory, whatever other
 * contexts there are. */
static void
unseen_work_and_two_contexts(void)
{
	CUdeviceptr part[2];
	CUstream unseen;
	CUcontext other;

	begin();
	other = order_context(0);
	order_use(order_take(MIB), 1, order_stream(NONBLOCKING));
	OK(cuCtxSynchronize());
	order_enter(context);
	unseen = order_stream(NONBLOCKING);
	(void)order_take(PART);
	for (uint32_t i = 0; i < 4; i++) {
		for (int k = 0; k < 2; k++) {
			part[k] = order_take(PART);
			OK(unseen_fill()(part[k], i, WORDS, unseen));
			order_use(x, i, s);
		}
		for (int k = 0; k < 2; k++)
			order_give(part[k]);
		OK(cuCtxSynchronize());
		order_give(order_take(BIG));
	}
	OK(cuCtxDestroy_v2(other));
	go_on();
}

/* Memory goes round that unseen work uses, and nobody waits for that. */
static void
unseen_work_goes_on(void)
{
	CUstream unseen;

	begin();
	unseen = order_stream(NONBLOCKING);
	for (uint32_t i = 0; i < 300; i++) {
		CUdeviceptr y = order_take(MIB);

		OK(unseen_fill()(y, i, WORDS, unseen));
		order_use(x, i, s);
		order_give(y);
	}
	OK(cuCtxSynchronize());
	go_on();
}

/* The same where all work is seen, but one context is given work on the other's memory. */
static void
work_of_two_contexts(void)
{
	CUdeviceptr part[2], y;
	CUstream t, u;
	CUcontext other;

	begin();
	t = order_stream(NONBLOCKING);
	OK(cuCtxSynchronize());
	other = order_context(0);
	u = order_stream(NONBLOCKING);
	y = order_take(MIB);
	order_enter(context);
	(void)order_take(PART);
	for (uint32_t i = 0; i < 8; i++) {
		for (int k = 0; k < 2; k++) {
			part[k] = order_take(PART);
			order_use(part[k], i, t);
			order_use(x, i, s);
		}
		OK(cuStreamSynchronize(t));
		order_enter(other);
		order_use(y, i, u);
		OK(cuMemcpyDtoDAsync_v2(part[0], y, sizeof(uint32_t) * WORDS, u));
		OK(cuStreamSynchronize(u));
		order_enter(context);
		for (int k = 0; k < 2; k++)
			order_give(part[k]);
		OK(cuStreamSynchronize(s));
		order_give(order_take(BIG));
	}
	OK(cuCtxDestroy_v2(other));
	go_on();
}

/* The tables of ORDER_TABLES (ids of 32 digits, a comma between two), asked for by the program, or
 * by the library ORDER_ASKER, which has no runtime in it. */
static void
tables(void)
{
	typedef CUresult get_table(const void **table, const CUuuid *id);
	typedef CUresult ask_table(get_table * get, const void **table, const CUuuid *id);

	const char *list = getenv("ORDER_TABLES"), *asker = getenv("ORDER_ASKER");
	void *library = asker ? dlopen(asker, RTLD_NOW) : NULL;
	void *found = library ? dlsym(library, "ask") : NULL;
	ask_table *ask = NULL;
	const void *table;
	CUuuid id;
	char *end;

	memcpy(&ask, &found, sizeof(ask));
	EXPECT(list && !asker == !ask);
	begin();
	for (; *list; list += *list == ',') {
		for (size_t i = 0; i < sizeof(id.bytes); i++, list += 2) {
			const char pair[] = { list[0], list[0] ? list[1] : '\0', '\0' };

			id.bytes[i] = (char)strtoul(pair, &end, 16);
			EXPECT(end == pair + 2);
		}
		OK(ask ? ask(cuGetExportTable, &table, &id) : cuGetExportTable(&table, &id));
		EXPECT(*(const size_t *)table == sizeof(size_t)); /* no functions */
	}
	go_on();
}

static void
peer_access(void)
{
	CUcontext other;

	begin();
	other = order_context(1);
	for (int i = 0; i < 2; i++)
		(void)cuCtxEnablePeerAccess(context, 0); /* the second time it is an error */
	order_enter(context);
	go_on();
	OK(cuCtxDestroy_v2(other));
}

/* The test makes cuCtxGetCurrent fail. */
static void
current_context(void)
{
	begin();
	for (uint32_t i = 0; i < 4; i++) {
		order_fill(x, i, 0, NULL);
		order_check(x, i, NULL);
		x = order_again(x, BIG);
	}
	go_on();
}

static void
network_library(void)
{
	begin();
	EXPECT(dlopen(getenv("NETWORK_LIBRARY"), RTLD_NOW | RTLD_GLOBAL));
	for (int i = 0; i < 2; i++) /* what the answer is depends on who asks */
		EXPECT(dlsym(RTLD_NEXT, "gdr_pin_buffer"));
	x = order_again(x, BIG);
	go_on();
}

static void
too_many_streams(void)
{
	begin();
	for (int i = 0; i < 500; i++)
		order_fill(x + (size_t)i * 4 * WORDS, 3, 0, order_stream(BLOCKING));
	OK(cuCtxSynchronize());
	go_on();
}

static void
context_wait(void)
{
	CUevent event;

	begin();
	event = order_event();
	OK(cuEventRecord(event, s));
	for (int i = 0; i < 2; i++)
		OK(cuCtxWaitEvent(context, event));
	go_on();
}

static void
device_graph(void)
{
	CUgraphExec exec;
	CUgraph graph;

	begin();
	OK(cuGraphCreate(&graph, 0));
	for (int i = 0; i < 2; i++) /* which the simulator refuses */
		(void)cuGraphInstantiateWithFlags(&exec, graph, 4);
	go_on();
}

static CUresult given;

static void
give_there(void *memory)
{
	given = cuMemFree_v2(*(CUdeviceptr *)memory);
}

/* The driver serves nobody inside a host function: no free, and no marks of ours. Afterwards it
 * does. Too many streams have used the memory for anything but a mark over all. */
static void
free_in_a_host_function(void)
{
	enum { USERS = 12 };
	CUstream user[USERS];
	CUevent event;

	begin();
	for (int i = 0; i < USERS; i++)
		user[i] = order_stream(NONBLOCKING);
	for (int i = 0; i < USERS; i++) {
		event = order_event();
		order_fill(x, 1, 0, user[i]);
		OK(cuEventRecord(event, user[i]));
		OK(cuStreamWaitEvent(user[(i + 1) % USERS], event, 0));
	}
	OK(cuLaunchHostFunc(user[0], give_there, &x));
	OK(cuStreamSynchronize(user[0]));
	EXPECT(given == CUDA_ERROR_NOT_PERMITTED); /* nothing was freed */
	order_check(x, 1, user[0]);
	OK(cuStreamSynchronize(user[0]));
	go_on();
}

static const struct order_case cases[] = {
	{ "free_in_a_host_function", free_in_a_host_function },
	{ "unseen_call", unseen_call },
	{ "unseen_capture", unseen_capture },
	{ "private_table", private_table },
	{ "unseen_in_a_capture", unseen_in_a_capture },
	{ "unseen_work_and_two_contexts", unseen_work_and_two_contexts },
	{ "unseen_work_goes_on", unseen_work_goes_on },
	{ "work_of_two_contexts", work_of_two_contexts },
	{ "tables", tables },
	{ "peer_access", peer_access },
	{ "current_context", current_context },
	{ "network_library", network_library },
	{ "too_many_streams", too_many_streams },
	{ "context_wait", context_wait },
	{ "device_graph", device_graph },
	{ NULL, NULL },
};
const struct order_case *const order_cases[] = { cases, NULL };
