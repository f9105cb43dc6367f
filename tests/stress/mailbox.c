/* SPDX-License-Identifier: MIT */
#include "tests/stress/mailbox.h"

#include <pthread.h>

enum {
	MAILBOX_MAX = 16,
};

static struct mailbox {
	pthread_mutex_t lock; /* guards the rest */
	struct block blocks[MAILBOX_MAX];
	int n;
} mailboxes[THREADS_MAX] = {
	{ .lock = PTHREAD_MUTEX_INITIALIZER },
	{ .lock = PTHREAD_MUTEX_INITIALIZER },
	{ .lock = PTHREAD_MUTEX_INITIALIZER },
};

void
mailbox_pass(struct worker *w, int i, int n_threads)
{
	struct mailbox *box = &mailboxes[(w->index + 1) % n_threads];

	block_settle(&w->blocks[i], &w->rng);
	pthread_mutex_lock(&box->lock);
	if (box->n < MAILBOX_MAX) {
		box->blocks[box->n++] = w->blocks[i];
		worker_drop(w, i);
	}
	pthread_mutex_unlock(&box->lock);
}

int
mailbox_take(struct worker *w)
{
	struct mailbox *box = &mailboxes[w->index];
	int took = 0;

	pthread_mutex_lock(&box->lock);
	if (box->n && w->n_blocks < BLOCKS_MAX) {
		w->blocks[w->n_blocks++] = box->blocks[--box->n];
		w->live_bytes += w->blocks[w->n_blocks - 1].n_bytes;
		took = 1;
	}
	pthread_mutex_unlock(&box->lock);
	return took;
}
