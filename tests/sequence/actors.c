/* SPDX-License-Identifier: MIT */
#include "tests/sequence/actors.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "tests/sequence/world.h"

struct actor {
	pthread_t thread;
	bool runs, stop;
	void (*step)(void *arg); /* NULL: nothing to do */
	void *arg;
};

static struct actor actors[ACTORS_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;

static void *
act(void *arg)
{
	struct actor *actor = arg;

	pthread_mutex_lock(&lock);
	while (!actor->stop) {
		if (!actor->step) {
			pthread_cond_wait(&moved, &lock);
			continue;
		}
		pthread_mutex_unlock(&lock);
		actor->step(actor->arg);
		pthread_mutex_lock(&lock);
		actor->step = NULL;
		pthread_cond_broadcast(&moved);
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

void
actors_do(unsigned actor, void (*step)(void *arg), void *arg)
{
	struct actor *to = &actors[actor];

	if (!actor) {
		step(arg);
		return;
	}
	pthread_mutex_lock(&lock);
	if (!to->runs)
		require(!pthread_create(&to->thread, NULL, act, to), "no thread");
	to->runs = true;
	to->arg = arg;
	to->step = step;
	pthread_cond_broadcast(&moved);
	while (to->step)
		pthread_cond_wait(&moved, &lock);
	pthread_mutex_unlock(&lock);
}

void
actors_stop(void)
{
	for (unsigned i = 1; i < ACTORS_MAX; i++) {
		struct actor *actor = &actors[i];

		if (!actor->runs)
			continue;
		pthread_mutex_lock(&lock);
		actor->stop = true;
		pthread_cond_broadcast(&moved);
		pthread_mutex_unlock(&lock);
		pthread_join(actor->thread, NULL);
		*actor = (struct actor){ .runs = false };
	}
}
