/* SPDX-License-Identifier: MIT */
/*
 * What the tests of the simulator's engine share: start and stop around each test, races and misuse
 * counted.
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "tests/sim/engine.h"

#define MIB ((size_t)1 << 20)
#define KIB ((size_t)1 << 10)

/* Seen since sim_begin(). */
extern struct fixture {
	CUcontext ctx; /* primary context of device 0, current */
	unsigned n_races;
	struct sim_race race; /* the last one */
	unsigned n_misuse;
	int misuse; /* code of the last one */
} fx;

/* Engine with n devices of mem_bytes, races reported to fx, device 0's primary context current. */
void fixture_begin(int n_devices, uint64_t mem_bytes, enum sim_clock clock);
/* The same with all of `config`, but for races and misuse. */
void fixture_begin_config(struct sim_config config);
/* cmocka set-up: one device of 64 MiB; two for fixture_two. */
int fixture_manual(void **state);
int fixture_real(void **state);
int fixture_two(void **state);
int fixture_end(void **state);

/* Shorthands that assert success. */
CUdeviceptr must_alloc(size_t n_bytes);
CUstream must_stream(unsigned flags);
CUevent must_event(void);
void fill(CUdeviceptr ptr, size_t n_bytes, uint32_t value, CUstream stream);
void fill_spin(CUdeviceptr ptr, size_t n_bytes, uint32_t value, uint64_t spin_us, CUstream stream);
void check(CUdeviceptr ptr, size_t n_bytes, uint32_t value, CUdeviceptr errors, CUstream stream);
void copy_words(CUdeviceptr dst, CUdeviceptr src, size_t n_bytes, CUstream stream);
/* A look past the API at simulated memory, which is host memory. */
uint32_t word_at(CUdeviceptr ptr);
/* A store that work which waits for the word's value sees, from any thread. */
void set_word(CUdeviceptr ptr, uint32_t value);
