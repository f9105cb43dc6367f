/* SPDX-License-Identifier: MIT */
/*
 * Operations that a cache serves, in streams that the driver orders with each other: what natively
 * comes behind them rests on work that was submitted before.
 */
#include "tests/process/told/told.h"

static CUstream a, b, n, m; /* two blocking, two not */

static void
begin(void)
{
	told_start();
	a = order_stream(BLOCKING);
	b = order_stream(BLOCKING);
	n = order_stream(NONBLOCKING);
	m = order_stream(NONBLOCKING);
}

/* x, freed in `stream`, is used by work that a natively right program knows to have ended. */
static void
free_and_use(CUdeviceptr x, CUstream stream)
{
	CUdeviceptr y;

	told_give(x, stream);
	y = told_take(BIG, m);
	order_use(y, 2, m);
	told_give(y, m);
	OK(cuCtxSynchronize());
}

/* b has a free behind the legacy stream's work, and is waited for. */
static void
synchronized_behind(void)
{
	begin();
	for (int i = 0; i < ROUNDS; i++) {
		CUdeviceptr x = told_take(BIG, n), z = told_take(SMALL, b);

		OK(cuCtxSynchronize());
		order_fill(x, 1, LONG, NULL);
		told_give(z, b);
		OK(cuStreamSynchronize(b));
		free_and_use(x, n);
	}
	order_end();
}

/* The same with a query. */
static void
queried_behind(void)
{
	begin();
	for (int i = 0; i < ROUNDS; i++) {
		CUdeviceptr x = told_take(BIG, n), z = told_take(SMALL, b);

		OK(cuCtxSynchronize());
		order_fill(x, 1, LONG, NULL);
		told_give(z, b);
		while (cuStreamQuery(b))
			order_sleep(20);
		free_and_use(x, n);
	}
	order_end();
}

/* The same with an event of the legacy stream behind a's work. */
static void
synchronized_behind_event(void)
{
	begin();
	for (int i = 0; i < ROUNDS; i++) {
		CUdeviceptr x = told_take(BIG, n), z = told_take(SMALL, b);
		CUevent event = order_event();

		OK(cuCtxSynchronize());
		order_fill(x, 1, LONG, a);
		OK(cuEventRecord(event, NULL));
		told_give(z, b);
		OK(cuStreamSynchronize(b));
		free_and_use(x, n);
		OK(cuEventDestroy_v2(event));
	}
	order_end();
}

/* The legacy stream takes again what it works on, and n uses it. */
static void
synchronized_reuse(void)
{
	begin();
	for (int i = 0; i < ROUNDS; i++) {
		CUdeviceptr x = told_take(BIG, NULL), z = told_take(SMALL, b), y;

		OK(cuCtxSynchronize());
		order_fill(x, 1, LONG, NULL);
		told_give(x, NULL);
		y = told_take(BIG, NULL);
		told_give(z, b);
		OK(cuStreamSynchronize(b));
		order_use(y, 2, n);
		told_give(y, n);
		OK(cuCtxSynchronize());
	}
	order_end();
}

/* b takes again what it works on; a uses it behind an operation of the legacy stream. */
static void
passed_reuse(void)
{
	begin();
	for (int i = 0; i < ROUNDS; i++) {
		CUdeviceptr x = told_take(BIG, b), spare = told_take(SMALL, NULL), y;

		OK(cuCtxSynchronize());
		order_fill(x, 1, LONG, b);
		told_give(x, b);
		y = told_take(BIG, b);
		told_give(spare, NULL);
		order_use(y, 2, a);
		told_give(y, a);
		OK(cuCtxSynchronize());
	}
	order_end();
}

/* The program's own data. */
static void
passed_data(void)
{
	begin();
	for (int i = 0; i < ROUNDS; i++) {
		CUdeviceptr x = told_take(BIG, b), spare = told_take(SMALL, NULL);

		OK(cuCtxSynchronize());
		order_fill(x, 1, LONG, b);
		told_give(spare, NULL);
		order_check(x, 1, a);
		told_give(x, a);
		OK(cuCtxSynchronize());
	}
	order_end();
}

/* A stream of another context comes after b. */
static void
other_context(void)
{
	CUcontext first, second;
	CUstream c;

	begin();
	OK(cuCtxGetCurrent(&first));
	second = order_context(0);
	c = order_stream(NONBLOCKING);
	m = order_stream(NONBLOCKING);
	for (int i = 0; i < ROUNDS; i++) {
		CUdeviceptr x, spare;
		CUevent event;

		order_enter(first);
		x = told_take(BIG, n);
		spare = told_take(SMALL, NULL);
		event = order_event();
		OK(cuCtxSynchronize());
		order_fill(x, 1, LONG, a);
		told_give(spare, NULL);
		OK(cuEventRecord(event, b));
		order_enter(second);
		OK(cuStreamWaitEvent(c, event, 0));
		told_give(x, c);
		x = told_take(BIG, m); /* asks */
		order_sleep(200);
		free_and_use(x, m);
		order_enter(first);
		OK(cuCtxSynchronize());
		OK(cuEventDestroy_v2(event));
	}
	order_end();
}

/* The host knows of a's end, by a synchronisation behind the legacy stream's free. */
static void
other_context_waited(CUstream waited)
{
	CUcontext first, second;
	CUstream c;

	OK(cuCtxGetCurrent(&first));
	second = order_context(0);
	c = order_stream(NONBLOCKING);
	m = order_stream(NONBLOCKING);
	for (int i = 0; i < ROUNDS; i++) {
		CUdeviceptr x, spare, z;

		order_enter(first);
		x = told_take(BIG, n);
		spare = told_take(SMALL, NULL);
		z = told_take(SMALL, b);
		OK(cuCtxSynchronize());
		order_fill(x, 1, LONG, a);
		told_give(spare, NULL);
		told_give(z, b);
		OK(cuStreamSynchronize(waited));
		order_enter(second);
		free_and_use(x, c);
		order_enter(first);
		OK(cuCtxSynchronize());
	}
	order_end();
}

static void
other_context_b(void)
{
	begin();
	other_context_waited(b);
}

static void
other_context_legacy(void)
{
	begin();
	other_context_waited(NULL);
}

/* Unseen work in a, passed on to n. */
static void
unseen_passed_on(void)
{
	CUdriverProcAddressQueryResult status;
	simb_private_fill *fill;
	void *found;

	begin();
	OK(cuGetProcAddress_v2(SIMB_FUTURE_NAME, &found, 13000, 0, &status));
	EXPECT(found);
	memcpy(&fill, &found, sizeof(fill));
	for (int i = 0; i < ROUNDS; i++) {
		CUdeviceptr x = told_take(BIG, n), spare = told_take(SMALL, NULL);

		OK(cuCtxSynchronize());
		OK(fill(x, 7, WORDS, a));
		told_give(spare, NULL);
		told_join(b, n);
		free_and_use(x, n);
	}
	order_end();
}

/* The legacy stream had an operation, then a kernel that ends only when the host says so begins in
 * a. What n takes and gives is n's, as natively. */
static void
lasting_kernel(void)
{
	volatile uint32_t *word;
	CUdeviceptr x;

	begin();
	word = order_word();
	x = told_take(SMALL, a);
	order_fill(x, 1, 1, a);
	order_fill(x, 1, 1, a);
	told_give(told_take(SMALL, NULL), NULL);
	order_wait(word, 1, a);
	for (int i = 0; i < 200; i++) {
		CUdeviceptr y = told_take(BIG, i % 2 ? n : m);

		order_use(y, 3, i % 2 ? n : m);
		told_give(y, i % 2 ? n : m);
		if (i % 4 == 3) {
			OK(cuStreamSynchronize(n));
			OK(cuStreamSynchronize(m));
		}
	}
	*word = 1;
	order_end();
}

/* A stream that is not ordered with the legacy one captures meanwhile, as another thread's could.
 */
static void
passed_in_capture(void)
{
	CUgraph graph;
	CUstream captured;

	begin();
	captured = order_stream(NONBLOCKING);
	for (int i = 0; i < ROUNDS; i++) {
		CUdeviceptr x = told_take(BIG, b), spare = told_take(SMALL, NULL), y;

		OK(cuCtxSynchronize());
		OK(cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
		order_fill(x, 1, LONG, b);
		told_give(x, b);
		y = told_take(BIG, b);
		told_give(spare, NULL);
		order_use(y, 2, a);
		told_give(y, a);
		OK(cuStreamEndCapture(captured, &graph));
		OK(cuGraphDestroy(graph));
		OK(cuCtxSynchronize());
	}
	order_end();
}

/* A blocking stream captures while b works: the legacy stream takes nothing. */
static void
refused_in_capture(void)
{
	CUdeviceptr x, spare, y = 0;
	CUgraph graph = NULL;

	begin();
	x = told_take(BIG, b);
	spare = told_take(SMALL, NULL);
	y = told_take(SMALL, NULL);
	told_give(y, NULL);
	OK(cuCtxSynchronize());
	OK(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_RELAXED));
	order_fill(x, 1, LONG, b);
	SHOW(cuMemAllocAsync(&y, SMALL, NULL));
	SHOW(cuMemFreeAsync(spare, NULL));
	SHOW(cuStreamEndCapture(a, &graph));
	SHOW(cuMemFreeAsync(spare, NULL));
	told_give(x, b);
	order_end();
}

/* Threads whose streams are ordered by the legacy one alone: each takes what it has just given back
 * in its own blocking stream, and passes it to the next. */
static CUdeviceptr handed[16];
static pthread_barrier_t turn;

static void
pass_along(int number)
{
	CUstream own = order_stream(BLOCKING);

	for (int i = 0; i < ROUNDS; i++) {
		int next = (number + i + 1) % 16;
		CUdeviceptr x = told_take(PART, own), spare = told_take(SMALL, NULL);

		order_fill(x, 1, 20, own);
		told_give(x, own);
		handed[number] = told_take(PART, own);
		told_give(spare, NULL);
		pthread_barrier_wait(&turn);
		order_use(handed[next], (uint32_t)number, own);
		told_give(handed[next], own);
		pthread_barrier_wait(&turn);
	}
}

static void
crowd_passes(void)
{
	begin();
	pthread_barrier_init(&turn, NULL, 16);
	order_threads(16, pass_along);
	order_end();
}

/* In the legacy stream, while a kernel in a lasts. */
static void
pairs_beside(void)
{
	volatile uint32_t *word;

	begin();
	word = order_word();
	for (int i = 0; i < PAIRS; i++)
		told_give(told_take(SMALL, NULL), NULL);
	order_wait(word, 1, a);
	for (int i = 0; i < PAIRS; i++)
		told_give(told_take(SMALL, b), b);
	for (int i = 0; i < 4; i++)
		told_give(told_take(SMALL, NULL), NULL);
	*word = 1;
	order_end();
}

/* The same as synchronized_behind, with a free in a stream for which there is no record any more.
 */
static void
untracked_behind(bool told)
{
	CUdeviceptr spare[ROUNDS];
	CUstream late = NULL;

	begin();
	for (int i = 0; i < ROUNDS; i++)
		if (told)
			spare[i] = told_take(SMALL, b);
		else
			OK(cuMemAlloc_v2(&spare[i], SMALL));
	for (int i = 0; i < 300; i++)
		late = order_stream(BLOCKING);
	for (int i = 0; i < ROUNDS; i++) {
		CUdeviceptr x = told_take(BIG, n);

		OK(cuCtxSynchronize());
		order_fill(x, 1, LONG, NULL);
		told_give(spare[i], late);
		OK(cuStreamSynchronize(late));
		order_check(x, 1, n);
		free_and_use(x, n);
	}
	order_end();
}

static void
untracked_told_behind(void)
{
	untracked_behind(true);
}

static void
untracked_untold_behind(void)
{
	untracked_behind(false);
}

/* The legacy stream has a kernel that ends only when the host says so, since before there was a
 * blocking stream; then memory is given back in one. */
static void
lasting_legacy(void)
{
	volatile uint32_t *word;
	CUdeviceptr x;

	told_start();
	word = order_word();
	x = told_take(SMALL, NULL);
	OK(cuCtxSynchronize());
	order_wait(word, 1, NULL);
	b = order_stream(BLOCKING);
	told_give(x, b);
	*word = 1;
	order_end();
}

const struct order_case told_legacy[] = {
	{ "lasting_legacy", lasting_legacy },
	{ "untracked_told_behind", untracked_told_behind },
	{ "untracked_untold_behind", untracked_untold_behind },
	{ "pairs_beside", pairs_beside },
	{ "passed_in_capture", passed_in_capture },
	{ "refused_in_capture", refused_in_capture },
	{ "crowd_passes", crowd_passes },
	{ "synchronized_behind", synchronized_behind },
	{ "queried_behind", queried_behind },
	{ "synchronized_behind_event", synchronized_behind_event },
	{ "synchronized_reuse", synchronized_reuse },
	{ "passed_reuse", passed_reuse },
	{ "passed_data", passed_data },
	{ "other_context", other_context },
	{ "other_context_b", other_context_b },
	{ "other_context_legacy", other_context_legacy },
	{ "unseen_passed_on", unseen_passed_on },
	{ "lasting_kernel", lasting_kernel },
	{ 0 },
};
