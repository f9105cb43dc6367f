/* SPDX-License-Identifier: MIT */
/* Freed blocks of more sets of users than there are lists for: they share one. */
#include "tests/unit/allocator/deferred/scene.h"

enum {
	STREAMS = 12,
	PAIRS = STREAMS * (STREAMS - 1) / 2,
	TIMES = 4,
	BLOCKS = PAIRS * TIMES,
	EACH = 2 * MIB,
	PAID = 64, /* looks, by the searches of a request, at most */
};

struct shared {
	struct fixture f;
	struct ca_stream *streams[STREAMS];
	uint64_t blocks[BLOCKS];
	const struct ca_user_set *set;
	unsigned waiting; /* in it */
};

static void
submit(struct shared *shared, unsigned i)
{
	ca_stream_note_thread(shared->streams[i]);
	ca_submit_begin(shared->streams[i], NULL);
	ca_model_stream_submit(shared->f.model, (void *)(uintptr_t)(S + i));
	ca_submit_end(shared->streams[i]);
}

static void
finish_all_of(struct shared *shared, unsigned i)
{
	uint64_t bound = ca_order_bound(shared->streams[i]);

	ca_model_stream_finish(shared->f.model, (void *)(uintptr_t)(S + i), UINT64_MAX);
	ca_order_finished(shared->streams[i], bound);
}

static unsigned
length(const struct ca_list *list)
{
	unsigned n = 0;

	CA_LIST_EACH(const struct ca_block, block, list, waiting)
		n += block->bytes != 0;
	return n;
}

/* Each pair of streams uses some blocks, which are freed and wait. */
static void
begin(struct shared *shared)
{
	unsigned i, j, n = 0;

	fixture_defaults(&shared->f);
	shared->f.config.reuse_slack_bytes = 4096 * (uint64_t)MIB;
	fixture_start(&shared->f);
	for (i = 0; i < STREAMS; i++)
		shared->streams[i] = open_stream(&shared->f, S + i);
	for (i = 0; i < STREAMS; i++)
		for (j = 0; j < i; j++) {
			unsigned first = n;

			for (; n < first + TIMES; n++) {
				shared->blocks[n] = fixture_alloc(&shared->f, EACH);
				fixture_alloc(&shared->f, EACH); /* so that they do not merge */
			}
			submit(shared, i);
			submit(shared, j);
			for (n = first; n < first + TIMES; n++)
				fixture_free(&shared->f, shared->blocks[n]);
		}
	fixture_alloc(&shared->f, 500 * MIB); /* nothing is left in a magazine */
	shared->set = NULL;
	CA_LIST_EACH(const struct ca_user_set, set, &shared->f.space->sets, link)
		if (!set->n)
			shared->set = set;
	assert_non_null(shared->set);
	shared->waiting = length(&shared->set->blocks);
	assert_true(shared->waiting > 2 * PAID);
}

static void
test_they_are_served_once_their_users_have_finished(void **state)
{
	static struct shared shared;
	uint64_t held;
	unsigned i;

	begin(&shared);
	held = fixture_sums(&shared.f).held_bytes;
	for (i = 0; i < STREAMS; i++)
		finish_all_of(&shared, i);
	for (i = 0; i < BLOCKS; i++)
		fixture_alloc(&shared.f, EACH);
	assert_int_equal(fixture_sums(&shared.f).held_bytes, held);
	assert_true(ca_list_empty(&shared.set->blocks));
	fixture_check(&shared.f);
	fixture_stop(&shared.f);
}

/* A look at all of them is paid for by requests, each of which finds what it needs elsewhere. One
 * that does not looks all the same. */
static void
test_requests_pay_for_a_look_at_all(void **state)
{
	static struct shared shared;
	unsigned i, looks = 0, debt, left;

	begin(&shared);
	fixture_free(&shared.f, fixture_alloc(&shared.f, 600 * MIB)); /* whence they are cut */
	debt = shared.f.space->unpaid_looks;
	for (i = 0; i < shared.waiting; i++) {
		submit(&shared, 0);
		finish_all_of(&shared, 0); /* the other one of each pair goes on */
		fixture_alloc(&shared.f, 3 * EACH + i % 7 * 4096);
		looks += shared.f.space->unpaid_looks >= debt;
		debt = shared.f.space->unpaid_looks;
	}
	left = length(&shared.set->blocks);
	assert_true(looks > 0);
	assert_true((looks - 1) * left <= shared.waiting * PAID);
	for (i = 0; i < STREAMS; i++)
		finish_all_of(&shared, i);
	fixture_alloc(&shared.f, EACH); /* pays a part */
	assert_false(ca_list_empty(&shared.set->blocks));
	fixture_alloc(&shared.f, 700 * MIB);
	assert_true(ca_list_empty(&shared.set->blocks));
	fixture_check(&shared.f);
	fixture_stop(&shared.f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_they_are_served_once_their_users_have_finished),
		cmocka_unit_test(test_requests_pay_for_a_look_at_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
