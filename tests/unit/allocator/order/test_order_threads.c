/* SPDX-License-Identifier: MIT */
/*
 * Threads on streams of their own and on a shared one. Pieces of memory go round through a table:
 * whoever takes one out submits to a random stream, frees it, exposes it by hand, and puts it back.
 * Its next user must come after all that was submitted before. Events are recorded and waited for
 * meanwhile, streams opened and closed, marks polled. Built with TSan, this is the race test.
 */
#include "tests/unit/allocator/order/fixture.h"

#include <pthread.h>

enum { THREADS = 4, SHARED = 2, PIECES = 16, EVENTS = 2, STEPS = 1500 };

struct piece {
	bool taken;
	uint64_t work[CA_MODEL_STREAMS]; /* by name: last piece of work that touched it */
};

struct shared {
	struct fixture f;
	struct ca_order *order;
	pthread_mutex_t heap; /* stands for the heap's lock */
	struct ca_stream *streams[SHARED];
	struct piece pieces[PIECES];
	struct ca_event events[EVENTS];
	_Atomic(const char *) broken;
	_Atomic uint64_t exposed, checked;
};

struct worker {
	struct shared *shared;
	unsigned name;
	struct ca_stream *own;
	uint64_t seed;
};

static uint64_t
pick(struct worker *w, uint64_t below)
{
	return fixture_random(&w->seed) % below;
}

static struct ca_stream *
some_stream(struct worker *w)
{
	return pick(w, 2) ? w->own : w->shared->streams[pick(w, SHARED)];
}

static unsigned
name_of(struct worker *w, struct ca_stream *stream)
{
	unsigned i;

	for (i = 0; i < SHARED; i++)
		if (stream == w->shared->streams[i])
			return i;
	return w->name;
}

static struct piece *
take(struct worker *w)
{
	struct piece *piece = &w->shared->pieces[pick(w, PIECES)];

	pthread_mutex_lock(&w->shared->heap);
	if (piece->taken)
		piece = NULL;
	else
		piece->taken = true;
	pthread_mutex_unlock(&w->shared->heap);
	return piece;
}

static void
put(struct worker *w, struct piece *piece, struct ca_stream *stream, uint64_t birth)
{
	struct shared *shared = w->shared;
	struct ca_users users;
	unsigned i;

	pthread_mutex_lock(&shared->heap);
	ca_order_users(shared->order, birth, &order_nobody, &users);
	if (!users.n && !users.context)
		memset(piece->work, 0, sizeof(piece->work));
	for (i = 0; i < users.n; i++)
		if (!ca_user_is_done(&users.user[i])) {
			ca_order_expose(shared->order, &users.user[i]);
			shared->exposed++;
		}
	if (users.context) { /* perhaps more than fit: expose what did use it, all the same */
		users.user[0] = (struct ca_user){ stream, atomic_load(&stream->last) };
		ca_order_expose(shared->order, &users.user[0]);
	}
	piece->taken = false;
	pthread_mutex_unlock(&shared->heap);
}

static void
use(struct worker *w)
{
	struct shared *shared = w->shared;
	struct ca_stream *stream = some_stream(w);
	struct piece *piece = take(w);
	unsigned name = name_of(w, stream), i;
	uint64_t birth = ca_order_birth(shared->order);

	if (!piece)
		return;
	ca_submit_begin(stream, NULL);
	for (i = 0; i < SHARED + THREADS; i++) {
		if (order_behind(&shared->f, stream, i) < piece->work[i])
			shared->broken = "a submission does not come after what was exposed";
		shared->checked += piece->work[i] != 0;
	}
	piece->work[name] = ca_model_stream_submit(shared->f.model, HANDLE(name));
	ca_submit_end(stream);
	put(w, piece, stream, birth);
}

static void
use_event(struct worker *w)
{
	struct shared *shared = w->shared;
	struct ca_event *event = &shared->events[pick(w, EVENTS)];
	struct ca_driver *driver = &shared->f.driver;
	struct ca_stream *stream = some_stream(w);
	uint64_t begun;
	uint64_t seen;
	ca_mark mark;

	/* an event that is recorded here, and by nobody else at a time the model could tell */
	begun = ca_event_record_begin(event, stream);
	driver->stream_mark(driver->self, (void *)1, order_handle(stream), &mark);
	ca_event_record_end(event, begun, true);
	seen = ca_event_look(event);
	if (seen && seen == begun + 1) {
		stream = some_stream(w);
		driver->stream_wait(driver->self, (void *)1, order_handle(stream), mark);
		ca_event_waited(event, seen, stream);
	}
	driver->mark_drop(driver->self, mark);
}

static void
step(struct worker *w)
{
	struct shared *shared = w->shared;

	switch (pick(w, 16)) {
	case 0:
		ca_model_stream_finish(shared->f.model, HANDLE(pick(w, SHARED + THREADS)),
				       pick(w, STEPS));
		break;
	case 1:
		ca_order_poll(shared->f.space);
		break;
	case 2:
		ca_stream_close(w->own, false);
		ca_stream_open(shared->f.space, CA_STREAM_NONBLOCKING, HANDLE(w->name), true,
			       &w->own);
		break;
	case 3:
		ca_submit_foreign(shared->f.space, NULL);
		ca_stream_note_thread(some_stream(w));
		break;
	case 4:
	case 5:
		use_event(w);
		break;
	default:
		use(w);
	}
}

static void *
work(void *arg)
{
	struct worker *w = arg;
	unsigned i;

	for (i = 0; i < STEPS; i++)
		step(w);
	return NULL;
}

static void
test_threads_find_every_exposed_piece_ordered(void **state)
{
	static struct shared shared;
	struct worker workers[THREADS];
	pthread_t threads[THREADS];
	uint64_t seed = fixture_seed(0x7e4d);
	unsigned i;

	memset(&shared, 0, sizeof(shared));
	shared.order = order_start(&shared.f);
	pthread_mutex_init(&shared.heap, NULL);
	for (i = 0; i < SHARED; i++)
		shared.streams[i] = order_open(&shared.f, i);
	for (i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){ .shared = &shared,
					      .name = SHARED + i,
					      .seed = seed + 77 * i };
		workers[i].own = order_open(&shared.f, SHARED + i);
	}
	for (i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	if (shared.broken)
		fail_msg("%s", shared.broken);
	printf("# %llu exposed, %llu checked\n", (unsigned long long)shared.exposed,
	       (unsigned long long)shared.checked);
	assert_true(shared.exposed > 1000);
	assert_true(shared.checked > 1000);
	order_stop(&shared.f);
}

/* ---- one thread finishes what another submits and frees */

struct finisher {
	struct ca_stream *stream;
	_Atomic bool stop;
};

static void *
finish_again_and_again(void *arg)
{
	struct finisher *finisher = arg;

	while (!finisher->stop)
		ca_order_finished(finisher->stream, ca_order_bound(finisher->stream));
	return NULL;
}

/* A stream is never overlooked between its submission and the end of that. */
static void
test_a_stream_that_goes_idle_meanwhile_is_not_overlooked(void **state)
{
	struct finisher finisher = { 0 };
	struct fixture f;
	struct ca_order *order = order_start(&f);
	pthread_t thread;
	unsigned i;

	finisher.stream = order_open(&f, 0);
	assert_int_equal(pthread_create(&thread, NULL, finish_again_and_again, &finisher), 0);
	for (i = 0; i < 200000; i++) {
		uint64_t birth = ca_order_birth(order);

		ca_submit_begin(finisher.stream, NULL);
		ca_submit_end(finisher.stream);
		if (!order_free(&f, birth).n && atomic_load(&order_record(finisher.stream)->done) <
							atomic_load(&finisher.stream->last))
			fail_msg("overlooked in round %u", i);
	}
	finisher.stop = true;
	pthread_join(thread, NULL);
	order_stop(&f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_threads_find_every_exposed_piece_ordered),
		cmocka_unit_test(test_a_stream_that_goes_idle_meanwhile_is_not_overlooked),
	};

	return cmocka_run_group_tests_name("allocator-order-threads", tests, NULL, NULL);
}
