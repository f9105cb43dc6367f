/* SPDX-License-Identifier: MIT */
/*
 * Little programs that meet: kernels, host functions and threads that wait for each other.
 *
 * A script has one program for each thread, a string of steps of four characters: what, on which
 * stream, with which word, mutex, pipe, buffer, event or thread, with which value. Thread 0 is the
 * process's first. Every thread has two buffers of its own.
 *
 *   fSB.  fill buffer B on stream S          wSWV  kernel waits for word W == V
 *   mSB.  set it by cuMemsetD32Async         sSWV  kernel stores V in word W
 *   cS..  create stream S (else: at start)   vSWV  cuStreamWaitValue32: word W >= V
 *   yS..  cuStreamSynchronize                uSWV  cuStreamWriteValue32
 *   eSE.  record event E                     bSWV  a batch that waits for word W >= V
 *   aSE.  stream waits for event E           h.WV  the host stores V in word W
 *   tT    start thread T (else: at start)    p.WV  the host polls word W until it is V
 *   g...  all threads meet                   l.M.  lock mutex M     k.M.  unlock it
 *   qSM.  host function: lock, unlock M      rSP.  host function: read a byte of pipe P
 *   z.P.  the host writes a byte to pipe P   xSP.  host function: write a byte to pipe P
 *
 * Streams: 0 to 9, n the legacy one, p the thread's own. Words are page-locked memory.
 *
 * Before one step of one thread (or two) an insertion is made: a buffer is freed and another taken,
 * of the same size or not, and used by the steps that follow.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
	THREADS_MAX = 8,
	STREAMS_MAX = 10,
	BUFFERS = 2,
	INSERTIONS_MAX = 2,
	STEP = 5, /* characters from one step to the next */
};

struct script {
	const char *name;
	const char *thread[THREADS_MAX];
	const char *blocking; /* the streams with default flags; others are non-blocking */
	const char *far;      /* the streams of device 1 */
	bool processes;       /* a process for each thread: they share only pipes */
};

extern const struct script scripts[]; /* ended by one without a name */

/* Who sleeps before its steps. */
enum pace {
	PACE_NONE,
	PACE_SLOW,   /* the threads with an insertion */
	PACE_FAST,   /* all others */
	PACE_RANDOM, /* and above: a seed */
};

struct job {
	const struct script *script;
	unsigned n; /* insertions */
	struct {
		unsigned thread, at;
	} where[INSERTIONS_MAX];
	unsigned buffer; /* which is freed */
	bool other_size;
	unsigned pace;
};

/* Number of steps of a thread's program; 0: no such thread. */
unsigned script_steps(const struct script *script, unsigned thread);
/* Runs the job in this process, which has not called cuInit; exits 0 (right) or 1. */
void job_run(const struct job *job) __attribute__((noreturn));
