/* SPDX-License-Identifier: MIT */
/* Threads that come and go: each has caches of its own, empty at first, and nothing piles up. */
#include "shim/track/stream_cache.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/shim/check.h"

enum { COME_AND_GO = 10000, AT_ONCE = 200, SLOTS_MAX = 128 };

static unsigned
slots_of(const struct ca_submission_cache *cache, unsigned which)
{
	return cache->table[which]->mask / sizeof(struct ca_submission_slot) + 1;
}

static bool
is_empty(const struct ca_submission_cache *cache)
{
	static const struct ca_submission_cache zero;

	for (unsigned i = 0; i < CA_SUBMISSION_TABLES; i++)
		for (unsigned j = 0; j < slots_of(cache, i); j++)
			if (ca_submission_at(cache->table[i],
					     j * (uint32_t)sizeof(struct ca_submission_slot))
				    ->word)
				return false;
	return !memcmp(cache->last_default, zero.last_default, sizeof(zero.last_default));
}

static bool
is_in_force(const struct ca_submission_cache *own)
{
	for (unsigned i = 0; i < CA_FLAVOURS; i++)
		if (ca_submission_views[i].slots != (uintptr_t)(own->table[i] + 1) ||
		    ca_submission_views[i].mask != own->table[i]->mask)
			return false;
	return own == ca_submission_cache;
}

static struct ca_submission_slot
slot_of(unsigned long number, uint64_t word)
{
	/* as drivers place their records: some hundred bytes apart */
	return (struct ca_submission_slot){ .handle = (CUstream)(0x555500001000 + number * 0x2f0),
					    .word = word,
					    .stream = (struct ca_stream *)(number + 1) };
}

static bool
has(const struct ca_submission_cache *own, unsigned which, unsigned long number, uint64_t word)
{
	struct ca_submission_slot want = slot_of(number, word);
	struct ca_submission_slot *found =
		ca_submission_find(own->table[which], want.handle, NULL, word);

	return found && found->stream == want.stream;
}

/* Answers the cache; fills it if it is sound, else NULL. */
static void *
use_one(void *ignored)
{
	struct ca_submission_cache *before = ca_submission_cache;
	struct ca_submission_cache *own;

	if (!is_empty(before) || !is_empty(ca_submission_cache_own()))
		return NULL;
	own = ca_submission_cache_own();
	if (own == before || !is_in_force(own))
		return NULL;
	for (unsigned i = 0; i < 100; i++) {
		struct ca_submission_slot slot = slot_of(i, 3);

		ca_submission_put(own, i % CA_SUBMISSION_TABLES, &slot);
		if (!has(own, i % CA_SUBMISSION_TABLES, i, 3) || !is_in_force(own))
			return NULL;
	}
	own->last_default[0].word = 3;
	return own;
}

/* All that may be tracked are found, nearly all at the first place; and there is an end to it. */
static void
test_256_streams_are_kept(void **state)
{
	enum { STREAMS = 256, MANY = 100000 };
	struct ca_submission_cache *own = ca_submission_cache_own();
	unsigned at_home = 0;

	assert_non_null(own);
	for (unsigned i = 0; i < STREAMS; i++) {
		struct ca_submission_slot slot = slot_of(i, 5);

		ca_submission_put(own, CA_SUBMISSION_LEGACY, &slot);
	}
	for (unsigned i = 0; i < STREAMS; i++) {
		assert_true(has(own, CA_SUBMISSION_LEGACY, i, 5));
		assert_false(has(own, CA_SUBMISSION_LEGACY, i, 6));
		assert_false(has(own, CA_SUBMISSION_PER_THREAD, i, 5));
		at_home +=
			ca_submission_home(0, slot_of(i, 5).handle)->handle == slot_of(i, 5).handle;
	}
	assert_in_range(at_home, STREAMS * 8 / 10, STREAMS);
	for (unsigned i = 0; i < MANY; i++) {
		struct ca_submission_slot slot = slot_of(i, 7);

		ca_submission_put(own, CA_SUBMISSION_LEGACY, &slot);
		assert_true(has(own, CA_SUBMISSION_LEGACY, i, 7));
	}
	assert_int_equal(slots_of(own, CA_SUBMISSION_LEGACY), CA_SUBMISSION_SLOTS_MAX);
}

/* As if a signal handler came in the middle of another put: it changes nothing. */
static void
test_a_put_within_a_put_is_left_out(void **state)
{
	struct ca_submission_cache *own = ca_submission_cache_own();
	struct ca_submission_slot first = slot_of(1, 9), second = slot_of(2, 9);

	assert_non_null(own);
	ca_submission_put(own, CA_SUBMISSION_PER_THREAD, &first);
	own->busy = true;
	ca_submission_put(own, CA_SUBMISSION_PER_THREAD, &second);
	own->busy = false;
	assert_true(has(own, CA_SUBMISSION_PER_THREAD, 1, 9));
	assert_false(has(own, CA_SUBMISSION_PER_THREAD, 2, 9));
	ca_submission_put(own, CA_SUBMISSION_PER_THREAD, &second);
	assert_true(has(own, CA_SUBMISSION_PER_THREAD, 2, 9));
}

/* Streams that come and go, as the word moves, take no more room than those that live. */
static void
test_what_is_out_of_date_makes_room(void **state)
{
	struct ca_submission_cache *own = ca_submission_cache_own();

	assert_non_null(own);
	for (unsigned i = 0; i < 10000; i++) {
		struct ca_submission_slot slot = slot_of(i, 10 + i);

		ca_submission_put(own, CA_SUBMISSION_KNOWN, &slot);
		assert_true(has(own, CA_SUBMISSION_KNOWN, i, 10 + i));
	}
	assert_int_equal(slots_of(own, CA_SUBMISSION_KNOWN), CA_SUBMISSION_SLOTS_MIN);
}

static void
test_threads_one_after_the_other_use_the_same_few(void **state)
{
	const void *seen[SLOTS_MAX] = { NULL };
	unsigned n = 0;

	for (unsigned i = 0; i < COME_AND_GO; i++) {
		pthread_t thread;
		unsigned at = 0;
		void *own;

		assert_int_equal(pthread_create(&thread, NULL, use_one, NULL), 0);
		assert_int_equal(pthread_join(thread, &own), 0);
		assert_non_null(own);
		while (at < n && seen[at] != own)
			at++;
		if (at == n)
			seen[n++] = own;
		assert_in_range(n, 1, SLOTS_MAX - 1);
	}
}

static sem_t arrived, go_on;

static void *
use_and_stay(void *ignored)
{
	void *own = use_one(NULL);

	sem_post(&arrived);
	sem_wait(&go_on);
	return own && own == ca_submission_cache_own() ? own : NULL;
}

/* Twice, so that the second lot finds what the first one left, with sweeps among living threads. */
static void
test_threads_at_once_share_none(void **state)
{
	static pthread_t threads[AT_ONCE];
	static void *own[AT_ONCE];

	sem_init(&arrived, 0, 0);
	sem_init(&go_on, 0, 0);
	for (unsigned round = 0; round < 2; round++) {
		for (unsigned i = 0; i < AT_ONCE; i++)
			assert_int_equal(pthread_create(&threads[i], NULL, use_and_stay, NULL), 0);
		for (unsigned i = 0; i < AT_ONCE; i++)
			sem_wait(&arrived);
		for (unsigned i = 0; i < AT_ONCE; i++)
			sem_post(&go_on);
		for (unsigned i = 0; i < AT_ONCE; i++) {
			pthread_join(threads[i], &own[i]);
			assert_non_null(own[i]);
			for (unsigned j = 0; j < i; j++)
				assert_ptr_not_equal(own[i], own[j]);
		}
	}
}

/* In a forked child the forking thread goes on under another number, and keeps what it has. */
static void
test_a_child_keeps_its_own(void **state)
{
	struct ca_submission_cache *own = ca_submission_cache_own();
	int status = 0;
	pid_t child;

	assert_non_null(own);
	own->last_default[1].word = 7;
	child = fork();
	if (!child) {
		ca_submission_cache_after_fork_child();
		for (unsigned i = 0; i < 10 * AT_ONCE; i++) {
			pthread_t thread;
			void *theirs = NULL;

			pthread_create(&thread, NULL, use_one, NULL);
			pthread_join(thread, &theirs);
			if (!theirs || theirs == own)
				_exit(1);
		}
		_exit(own == ca_submission_cache_own() && own->last_default[1].word == 7 ? 0 : 2);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	own->last_default[1].word = 0;
}

static atomic_bool stop;

static void
on_signal(int number)
{
	if (!ca_submission_cache_own())
		_exit(3);
}

/* Each thread's first use races with a handler's. */
static void *
use_under_signals(void *ignored)
{
	struct ca_submission_cache *own = ca_submission_cache_own();

	return own && own == ca_submission_cache_own() && is_empty(own) && is_in_force(own) ? own
											    : NULL;
}

static void *
bother(void *arg)
{
	while (!atomic_load(&stop))
		kill(getpid(), SIGUSR1);
	return NULL;
}

static void
test_a_handler_that_comes_first(void **state)
{
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART }, before;
	sigset_t usr1;
	pthread_t botherer;

	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	assert_int_equal(sigaction(SIGUSR1, &action, &before), 0);
	assert_int_equal(pthread_create(&botherer, NULL, bother, NULL), 0);
	for (unsigned i = 0; i < AT_ONCE; i++) {
		pthread_t thread;
		void *own = NULL;

		assert_int_equal(pthread_create(&thread, NULL, use_under_signals, NULL), 0);
		pthread_sigmask(SIG_BLOCK, &usr1, NULL); /* the other gets them meanwhile */
		pthread_join(thread, &own);
		pthread_sigmask(SIG_UNBLOCK, &usr1, NULL);
		assert_non_null(own);
	}
	atomic_store(&stop, true);
	pthread_join(botherer, NULL);
	sigaction(SIGUSR1, &before, NULL);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_is_out_of_date_makes_room),
		cmocka_unit_test(test_a_put_within_a_put_is_left_out),
		cmocka_unit_test(test_256_streams_are_kept),
		cmocka_unit_test(test_threads_one_after_the_other_use_the_same_few),
		cmocka_unit_test(test_threads_at_once_share_none),
		cmocka_unit_test(test_a_child_keeps_its_own),
		cmocka_unit_test(test_a_handler_that_comes_first),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
