/* SPDX-License-Identifier: MIT */
/* All the ways in which a program can say "this before that". */
#include "tests/stress/order/order.h"

#include <sched.h>
#include <stdatomic.h>

/* ---------------------------------------------------------------- words --- */

/* Each is used once in a round; a new round begins when all signals of the last are done. */
CUdeviceptr
word_take(struct worker *w, struct place *place, uint32_t *ret_value)
{
	unsigned n;

	word_reserve(w, place, 1);
	n = place->next_word[w->index]++;
	*ret_value = n / WORDS_MAX + 1;
	return place->words + 4ul * (WORDS_MAX * (unsigned)w->index + n % WORDS_MAX);
}

void
word_reserve(struct worker *w, struct place *place, int n)
{
	unsigned next = place->next_word[w->index], used = next % WORDS_MAX;

	if (used && used + (unsigned)n <= WORDS_MAX)
		return;
	if (next)
		context_sync(w, place);
	place->next_word[w->index] = (next + WORDS_MAX - 1) / WORDS_MAX * WORDS_MAX;
}

static CUstreamBatchMemOpParams
batch_of(CUstreamBatchMemOpType operation, CUdeviceptr word, uint32_t value)
{
	CUstreamBatchMemOpParams op = { .pad = { 0 } };

	op.operation = operation;
	op.waitValue.address = word;
	op.waitValue.value = value;
	return op;
}

static CUstream
handle_of(const struct place *p, int slot)
{
	return slot == SLOT_PER_THREAD ? CU_STREAM_PER_THREAD : p->slots[slot].handle;
}

void
signal_submit(struct worker *w, struct place *p, int slot, CUdeviceptr word, uint32_t value)
{
	CUstreamBatchMemOpParams op = batch_of(CU_STREAM_MEM_OP_WRITE_VALUE_32, word, value);
	uint64_t args[] = { word, value };

	place_enter(p);
	switch (rng_below(&w->rng, 3)) {
	case 0:
		submit_kernel(w, p, slot, p->signal, args, 2);
		break;
	case 1:
		OP(w, calls.cuStreamWriteValue32_v2(handle_of(p, slot), word, value, 0));
		break;
	default:
		OP(w, calls.cuStreamBatchMemOp_v2(handle_of(p, slot), 1, &op, 0));
	}
	w->last = slot;
}

void
await_submit(struct worker *w, struct place *p, int slot, CUdeviceptr word, uint32_t value)
{
	CUstreamBatchMemOpParams op = batch_of(CU_STREAM_MEM_OP_WAIT_VALUE_32, word, value);
	uint64_t args[] = { word, value };

	place_enter(p);
	switch (rng_below(&w->rng, 3)) {
	case 0:
		submit_kernel(w, p, slot, p->wait, args, 2);
		break;
	case 1: /* the word counts up */
		OP(w, calls.cuStreamWaitValue32_v2(handle_of(p, slot), word, value,
						   (unsigned)rng_below(&w->rng, 2)));
		break;
	default:
		OP(w, calls.cuStreamBatchMemOp_v2(handle_of(p, slot), 1, &op, 0));
	}
}

/* ----------------------------------------------------------------- host --- */

void
context_sync(struct worker *w, struct place *place)
{
	if (w->window)
		return;
	pthread_rwlock_rdlock(&place->calm);
	place_enter(place);
	OP(w, cuCtxSynchronize());
	pthread_rwlock_unlock(&place->calm);
}

/* A manual clock stands still while somebody only asks. */
static void
pass_time(void)
{
	if (calls.step)
		calls.step(2);
	sched_yield();
}

static void
poll_event(struct worker *w, CUevent event)
{
	CUresult code;

	while ((code = cuEventQuery(event)) == CUDA_ERROR_NOT_READY)
		pass_time();
	OP(w, code);
}

static void
poll_stream(struct worker *w, struct place *p, int slot)
{
	CUresult code;

	place_enter(p);
	while ((code = cuStreamQuery(handle_of(p, slot))) == CUDA_ERROR_NOT_READY)
		pass_time();
	OP(w, code);
}

static void
raise_flag(void *data)
{
	atomic_store((_Atomic int *)data, 1);
}

static void
raise_flag_callback(CUstream stream, CUresult status, void *data)
{
	raise_flag(data);
}

static void
host_function(struct worker *w, struct place *p, int slot)
{
	_Atomic int flag = 0;

	place_enter(p);
	if (chance(w, 2))
		OP(w, calls.cuLaunchHostFunc(handle_of(p, slot), raise_flag, (void *)&flag));
	else
		OP(w, calls.cuStreamAddCallback(handle_of(p, slot), raise_flag_callback,
						(void *)&flag, 0));
	while (!atomic_load(&flag))
		pass_time();
}

/* --------------------------------------------------------------- events --- */

enum event_way {
	EVENT_WAIT,
	EVENT_SYNC,
	EVENT_POLL,
};

static void
by_event(struct worker *w, struct place *from_place, int from, struct place *to_place, int to,
	 enum event_way way, bool whole)
{
	bool own = chance(w, 2);
	CUevent event = from_place->own[w->index][rng_below(&w->rng, EVENTS_MAX)];

	place_enter(from_place);
	if (!own)
		OP(w, cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	if (whole) {
		pthread_rwlock_rdlock(&from_place->calm);
		OP(w, calls.cuCtxRecordEvent(from_place->ctx, event));
		pthread_rwlock_unlock(&from_place->calm);
	} else if (!green_record(w, &from_place->slots[from], event)) {
		submit_record(w, from_place, from, event);
	}
	if (way == EVENT_WAIT)
		submit_wait(w, to_place, to, event);
	else if (way == EVENT_SYNC)
		OP(w, cuEventSynchronize(event));
	else
		poll_event(w, event);
	if (!own)
		OP(w, cuEventDestroy_v2(event));
}

static void
by_value(struct worker *w, struct place *place, int from, int to)
{
	uint32_t value;
	CUdeviceptr word = word_take(w, place, &value);

	signal_submit(w, place, from, word, value);
	await_submit(w, place, to, word, value);
}

void
order_slots(struct worker *w, struct place *from_place, int from, struct place *to_place, int to)
{
	if (from_place == to_place && from == to)
		return;
	switch (w->window ? 99 : rng_below(&w->rng, 100)) {
	case 0:
		submit_sync(w, from_place, from);
		break;
	case 1:
		context_sync(w, from_place);
		break;
	case 2:
		by_event(w, from_place, from, to_place, to, EVENT_SYNC, false);
		break;
	case 3:
		by_event(w, from_place, from, to_place, to, EVENT_POLL, false);
		break;
	case 4:
		poll_stream(w, from_place, from);
		break;
	case 5:
		host_function(w, from_place, from);
		break;
	case 6:
	case 7:
		by_event(w, from_place, from, to_place, to, EVENT_WAIT, true);
		break;
	case 11:
		if (from_place == to_place && rows_order(w, from_place, from, to))
			break;
		__attribute__((fallthrough));
	case 8:
	case 9:
	case 10:
		if (from_place == to_place) {
			by_value(w, from_place, from, to);
			break;
		}
		__attribute__((fallthrough));
	default:
		by_event(w, from_place, from, to_place, to, EVENT_WAIT, false);
	}
}
