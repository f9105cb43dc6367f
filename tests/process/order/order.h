/* SPDX-License-Identifier: MIT */
/*
 * Small programs about the order of reuse: `order_x CASE` runs one, `--list` names them.
 *
 * Every case is right natively, where cuMemFree waits for the device, and asks for memory of the
 * size that it has just freed, from a stream that is not ordered after the old user: a library that
 * hands out unfinished memory must order it. A mistake shows in the contents, in the race oracle
 * (SIMCUDA_RACES=abort), or in a check that counts wrong words on the device. Exit 0 right, 1
 * wrong, 2 no such case. ORDER_WARM=1: each thread takes and gives back, untouched, memory of the
 * sizes that the cases use before it does anything else, so that a case begins with what the thread
 * keeps for itself.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/abi.h"

#define SIM_ENTRY(symbol, body, flavour, when, params, args) CUresult symbol params;
#include "tests/sim/entries.def"
#undef SIM_ENTRY

struct order_case {
	const char *name;
	void (*run)(void);
};

/* The program's tables, ended by NULL; each table is ended by a case without a name. */
extern const struct order_case *const order_cases[];

#define EXPECT(condition)                                                                          \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);    \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

#define OK(call)                                                                                   \
	do {                                                                                       \
		CUresult ok_rc = (call);                                                           \
		if (ok_rc) {                                                                       \
			fprintf(stderr, "%s:%d: %s = %d\n", __FILE__, __LINE__, #call,             \
				(int)ok_rc);                                                       \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

enum {
	MIB = 1 << 20,
	BIG = 12 * MIB, /* a segment of its own: the next one of that size is the same */
	PART = 6 * MIB, /* three share a segment of 20 MiB */
	WORDS = 4096,   /* of a block, that the cases write and check */
	LONG = 1500,    /* us that a kernel takes which must be unfinished a moment later */
	BLOCKING = 0,   /* flags of cuStreamCreate */
	NONBLOCKING = 1,
	WAIT_EQ = 1, /* CU_STREAM_WAIT_VALUE_EQ */
};

/* cuInit, and the primary context of device 0, current in this thread. */
CUcontext order_start(void);
/* A context of its own on `device`, current afterwards. */
CUcontext order_context(int device);
/* Makes `context` current in the calling thread. */
void order_enter(CUcontext context);
/* A built-in kernel, for the current context; with ORDER_LIBRARY=1 a CUkernel in a CUfunction's
 * place. */
CUfunction order_kernel(const char *name);

CUstream order_stream(unsigned flags);
CUdeviceptr order_take(size_t bytes);
void order_give(CUdeviceptr memory);
/* Frees, and takes as much again: the same memory, if the library is willing. */
CUdeviceptr order_again(CUdeviceptr memory, size_t bytes);
CUevent order_event(void);
/* A word of page-locked memory that holds 0: both sides see it. */
volatile uint32_t *order_word(void);

/* WORDS words from `memory` on; each kernel lasts `spin_us`. */
void order_fill(CUdeviceptr memory, uint32_t value, uint64_t spin_us, CUstream stream);
void order_copy(CUdeviceptr target, CUdeviceptr source, uint64_t spin_us, CUstream stream);
/* A kernel counts words that differ from `value`; order_end wants none. */
void order_check(CUdeviceptr memory, uint32_t value, CUstream stream);
/* Fills and checks in one go. */
void order_use(CUdeviceptr memory, uint32_t value, CUstream stream);
void order_wait(volatile uint32_t *word, uint32_t value, CUstream stream);
void order_signal(volatile uint32_t *word, uint32_t value, CUstream stream);
/* Work of the current context fails, so that the context is of no use any more. */
void order_fault(void);
/* sim_fill through the names for per-thread default streams. */
void order_fill_ptsz(CUdeviceptr memory, uint32_t value, uint64_t spin_us, CUstream stream);
void order_check_ptsz(CUdeviceptr memory, uint32_t value, CUstream stream);
/* sim_fill with one launch attribute. */
void order_fill_with(CUlaunchAttribute *attribute, CUdeviceptr memory, uint32_t value,
		     uint64_t spin_us, CUstream stream);
/* Wrong words, read by the host. */
uint64_t order_wrong(CUdeviceptr memory, uint32_t value);
/* Waits for the current context; no check may have counted anything. */
void order_end(void);

/* Threads that are told their number; their context is the one current at the start. */
void order_threads(int n, void (*run)(int number));
/* Microseconds asleep. */
void order_sleep(unsigned us);
