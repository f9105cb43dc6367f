/* SPDX-License-Identifier: MIT */
/*
 * Random programs on a few streams against a naive reference. The reference remembers of every
 * block, live or freed, the last piece of work of each stream that may have touched it. At a free
 * the tracker's users must cover all of it that is unfinished; once it calls the users done, all of
 * it must be; and when unfinished memory was handed out, every later submission to another stream
 * must come after what touched it before.
 */
#include "tests/unit/allocator/order/fixture.h"

/* Events have another form where a space has more than CA_EVENT_PARTS streams. */
enum {
	STREAMS = 7,
	STREAMS_MANY = CA_EVENT_PARTS + 8,
	BLOCKS = 24,
	EVENTS = 4,
	STEPS = 3000,
	ROUNDS = 600
};

struct stream {
	struct ca_stream *stream;
	unsigned name; /* of the pretend stream; a new one each time */
	enum ca_stream_kind kind;
};

enum state { NONE, LIVE, FREED };

struct block {
	enum state state;
	uint64_t birth;
	struct ca_users users;             /* LIVE: inherited; FREED: the tracker's answer */
	uint64_t work[CA_MODEL_STREAMS];   /* by name: last piece that may touch it */
	uint64_t before[CA_MODEL_STREAMS]; /* LIVE: what touched it before it was handed out */
	uint64_t bound;                    /* FREED, users.context: of its context mark */
	ca_mark mark;
};

struct event {
	struct ca_event event;
	ca_mark mark;
};

struct program {
	struct fixture f;
	struct ca_order *order;
	struct stream streams[STREAMS_MANY];
	unsigned n_streams; /* of them in use */
	struct block blocks[BLOCKS];
	struct event events[EVENTS];
	uint64_t seed;
	struct ca_stream
		*records[CA_MODEL_STREAMS]; /* by name; a record serves one after another */
	unsigned names;
	uint64_t frees, exposed, contexts, settled, guarded;
};

static uint64_t
pick(struct program *p, uint64_t below)
{
	return fixture_random(&p->seed) % below;
}

static struct stream *
open_stream(struct program *p)
{
	struct stream *stream = &p->streams[pick(p, p->n_streams)];

	return stream->stream ? stream : NULL;
}

/* What the driver itself does around the legacy stream. */
static void
order_legacy(struct program *p, const struct stream *to)
{
	struct ca_driver *driver = &p->f.driver;
	ca_mark mark;
	unsigned i;

	for (i = 0; i < p->n_streams; i++) {
		const struct stream *other = &p->streams[i];

		if (!other->stream || other == to || other->kind == CA_STREAM_NONBLOCKING ||
		    to->kind == CA_STREAM_NONBLOCKING ||
		    (other->kind != CA_STREAM_LEGACY && to->kind != CA_STREAM_LEGACY))
			continue;
		assert_int_equal(
			driver->stream_mark(driver->self, (void *)1, HANDLE(other->name), &mark),
			0);
		assert_int_equal(
			driver->stream_wait(driver->self, (void *)1, HANDLE(to->name), mark), 0);
		driver->mark_drop(driver->self, mark);
	}
}

static void
check_guarded(struct program *p, const struct stream *to)
{
	unsigned i, name;

	for (i = 0; i < BLOCKS; i++) {
		const struct block *block = &p->blocks[i];

		for (name = 0; block->state == LIVE && name < p->names; name++) {
			if (order_behind(&p->f, to->stream, name) < block->before[name])
				fail_msg("stream %u does not come after piece %llu of stream %u",
					 to->name, (unsigned long long)block->before[name], name);
			p->guarded += block->before[name] != 0;
		}
	}
}

static void
do_launch(struct program *p)
{
	struct stream *stream = open_stream(p);
	uint64_t work;
	unsigned i;

	if (!stream)
		return;
	ca_submit_begin(stream->stream, NULL);
	order_legacy(p, stream);
	check_guarded(p, stream);
	work = ca_model_stream_submit(p->f.model, HANDLE(stream->name));
	ca_submit_end(stream->stream);
	for (i = 0; i < BLOCKS; i++)
		if (p->blocks[i].state == LIVE)
			p->blocks[i].work[stream->name] = work;
}

static bool
is_finished(struct program *p, const struct block *block)
{
	unsigned name;

	for (name = 0; name < p->names; name++)
		if (ca_model_stream_finished(p->f.model, HANDLE(name)) < block->work[name])
			return false;
	return true;
}

static void
do_alloc(struct program *p, struct block *block)
{
	if (block->state != NONE)
		return;
	memset(block, 0, sizeof(*block));
	block->state = LIVE;
	block->birth = ca_order_birth(p->order);
}

static void
mark_context(struct program *p, struct block *block)
{
	struct ca_driver *driver = &p->f.driver;

	p->contexts++;
	block->bound = ca_order_context_bound(p->order);
	assert_int_equal(driver->mark_record(driver->self, (void *)1, &block->mark), 0);
}

/* A user is the stream, or comes after the piece of work that the stream named so did last. */
static bool
is_among(struct program *p, const struct block *block, unsigned name)
{
	unsigned i, j;

	for (i = 0; i < block->users.n; i++)
		for (j = 0; j < p->names; j++)
			if (p->records[j] == block->users.user[i].stream &&
			    ca_model_stream_after(p->f.model, HANDLE(j), HANDLE(name)) >=
				    block->work[name])
				return true;
	return false;
}

static void
do_free(struct program *p, struct block *block)
{
	struct ca_users inherited = block->users;
	unsigned name;

	if (block->state != LIVE)
		return;
	p->frees++;
	ca_order_users(p->order, block->birth, &inherited, &block->users);
	block->state = FREED;
	for (name = 0; name < p->names && !block->users.context; name++) {
		if (ca_model_stream_finished(p->f.model, HANDLE(name)) >= block->work[name])
			continue;
		if (!is_among(p, block, name))
			fail_msg("stream %u is a user and not reported", name);
	}
	if (block->users.context)
		mark_context(p, block);
}

static void
drop_context(struct program *p, struct block *block)
{
	struct ca_driver *driver = &p->f.driver;

	if (!block->mark || driver->mark_query(driver->self, block->mark))
		return;
	driver->mark_drop(driver->self, block->mark);
	block->mark = CA_MARK_NONE;
	ca_order_context_finished(p->order, block->bound);
	block->users = order_nobody;
}

static void
do_settle(struct program *p, struct block *block)
{
	if (block->state != FREED)
		return;
	drop_context(p, block);
	if (!ca_users_remove_finished(&block->users))
		return;
	p->settled++;
	if (!is_finished(p, block))
		fail_msg("called finished too early");
	block->state = NONE;
}

static void
do_expose(struct program *p, struct block *block)
{
	if (block->state != FREED || block->users.context || block->users.n != 1)
		return;
	if (!order_may_expose(p->order, &block->users.user[0]))
		return;
	ca_order_expose(p->order, &block->users.user[0]);
	p->exposed++;
	block->state = LIVE;
	block->birth = ca_order_birth(p->order);
	memcpy(block->before, block->work, sizeof(block->before));
}

static void
do_open(struct program *p)
{
	struct stream *stream = &p->streams[pick(p, p->n_streams)];
	unsigned i;

	if (stream->stream || p->names == CA_MODEL_STREAMS)
		return;
	stream->kind = pick(p, 3) ? CA_STREAM_NONBLOCKING : CA_STREAM_BLOCKING;
	if (!pick(p, 4))
		stream->kind = CA_STREAM_LEGACY;
	for (i = 0; i < p->n_streams; i++)
		if (p->streams[i].stream && p->streams[i].kind == CA_STREAM_LEGACY &&
		    stream->kind == CA_STREAM_LEGACY)
			return; /* there is one */
	stream->name = p->names++;
	stream->stream = order_open_kind(&p->f, stream->name, stream->kind);
	p->records[stream->name] = stream->stream;
}

static void
do_close(struct program *p)
{
	struct stream *stream = open_stream(p);

	if (!stream || stream->kind == CA_STREAM_LEGACY)
		return;
	ca_stream_close(stream->stream, false);
	stream->stream = NULL;
}

static void
do_record(struct program *p, struct event *event)
{
	struct stream *stream = open_stream(p);
	struct ca_driver *driver = &p->f.driver;
	uint64_t begun;

	if (!stream)
		return;
	if (event->mark)
		driver->mark_drop(driver->self, event->mark);
	begun = ca_event_record_begin(&event->event, stream->stream);
	assert_int_equal(
		driver->stream_mark(driver->self, (void *)1, HANDLE(stream->name), &event->mark),
		0);
	ca_event_record_end(&event->event, begun, true);
}

static void
do_event(struct program *p, struct event *event, bool host)
{
	struct ca_driver *driver = &p->f.driver;
	struct stream *stream = open_stream(p);
	uint64_t seen;

	if (!event->mark || !stream)
		return;
	seen = ca_event_look(&event->event);
	if (host && pick(p, 2)) {
		if (!driver->mark_query(driver->self, event->mark))
			ca_event_finished(&event->event, seen);
	} else if (host) {
		assert_int_equal(driver->mark_wait(driver->self, event->mark), 0);
		ca_event_finished(&event->event, seen);
	} else {
		assert_int_equal(driver->stream_wait(driver->self, (void *)1, HANDLE(stream->name),
						     event->mark),
				 0);
		ca_event_waited(&event->event, seen, stream->stream);
	}
}

static void
do_synchronize(struct program *p)
{
	struct stream *stream = open_stream(p);
	uint64_t bound;

	if (!stream)
		return;
	bound = ca_order_bound(stream->stream);
	ca_model_stream_finish(p->f.model, HANDLE(stream->name), UINT64_MAX);
	ca_order_finished(stream->stream, bound);
}

static void
do_wait(struct program *p, struct block *block)
{
	if (block->state == FREED && block->users.n) {
		int r = ca_order_wait(p->f.space, &block->users.user[0]);

		if (r != -EAGAIN)
			assert_int_equal(r, 0);
	}
}

static void
do_work(struct program *p)
{
	unsigned name = (unsigned)pick(p, p->names + 1);
	uint64_t submitted = ca_model_stream_submitted(p->f.model, HANDLE(name));

	ca_model_stream_finish(p->f.model, HANDLE(name), pick(p, submitted + 1));
}

static void
step(struct program *p)
{
	struct block *block = &p->blocks[pick(p, BLOCKS)];
	struct event *event = &p->events[pick(p, EVENTS)];

	switch (pick(p, 40)) {
	case 0:
		if (!pick(p, 4))
			do_open(p);
		break;
	case 1:
		if (!pick(p, 8))
			do_close(p);
		break;
	case 2:
		do_synchronize(p);
		break;
	case 3:
		assert_int_equal(ca_order_poll(p->f.space), 0);
		break;
	case 4:
		do_wait(p, block);
		break;
	case 5:
	case 6:
		do_record(p, event);
		break;
	case 7:
	case 8:
		do_event(p, event, false);
		break;
	case 9:
		do_event(p, event, true);
		break;
	case 10:
	case 11:
		do_work(p);
		break;
	case 12:
		if (!pick(p, 16))
			ca_submit_foreign(p->f.space, NULL);
		break;
	default:
		if (pick(p, 3) == 0)
			do_launch(p);
		else if (pick(p, 3) == 0)
			do_alloc(p, block);
		else if (pick(p, 2))
			do_free(p, block);
		else if (pick(p, 2))
			do_expose(p, block);
		else
			do_settle(p, block);
	}
}

static void
drop_marks(struct program *p)
{
	unsigned i;

	for (i = 0; i < EVENTS; i++)
		if (p->events[i].mark)
			p->f.driver.mark_drop(p->f.driver.self, p->events[i].mark);
	for (i = 0; i < BLOCKS; i++)
		if (p->blocks[i].mark)
			p->f.driver.mark_drop(p->f.driver.self, p->blocks[i].mark);
}

static void
run(struct program *total, unsigned n_streams, uint64_t seed)
{
	static struct program p;
	unsigned i;

	memset(&p, 0, sizeof(p));
	p.seed = seed;
	p.order = order_start(&p.f);
	p.n_streams = n_streams;
	for (i = 0; n_streams > STREAMS && i < n_streams; i++)
		do_open(&p);
	for (i = 0; i < STEPS; i++)
		step(&p);
	drop_marks(&p);
	order_stop(&p.f);
	total->frees += p.frees;
	total->exposed += p.exposed;
	total->contexts += p.contexts;
	total->settled += p.settled;
	total->guarded += p.guarded;
	total->seed = p.seed;
}

static void
run_all(unsigned rounds, unsigned n_streams)
{
	struct program *total = calloc(1, sizeof(*total));
	uint64_t seed = fixture_seed(0x0bde5);
	unsigned i;

	assert_non_null(total);
	for (i = 0; i < rounds; i++) {
		run(total, n_streams, seed);
		seed = total->seed;
	}
	printf("# %llu frees, %llu settled, %llu exposed, %llu by context, %llu checks of order\n",
	       (unsigned long long)total->frees, (unsigned long long)total->settled,
	       (unsigned long long)total->exposed, (unsigned long long)total->contexts,
	       (unsigned long long)total->guarded);
	assert_true(total->exposed > 100);
	assert_true(total->settled > 1000);
	assert_true(total->guarded > 1000);
	free(total);
}

static void
test_random_programs_find_no_user_missing_and_no_exposure_unordered(void **state)
{
	run_all(FIXTURE_PART(ROUNDS), STREAMS);
}

static void
test_the_same_with_many_streams(void **state)
{
	run_all(FIXTURE_PART(ROUNDS / 4), STREAMS_MANY);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_random_programs_find_no_user_missing_and_no_exposure_unordered),
		cmocka_unit_test(test_the_same_with_many_streams),
	};

	return cmocka_run_group_tests_name("allocator-order-property", tests, NULL, NULL);
}
