/* SPDX-License-Identifier: MIT */
/* Threads that take turns: who does what is decided by the sequence, and the same in each run. */
#pragma once

enum { ACTORS_MAX = 3 };

/* Calls `step` in the thread of that actor (0: the caller's own) and returns when it is done. */
void actors_do(unsigned actor, void (*step)(void *arg), void *arg);
/* Ends the threads. */
void actors_stop(void);
