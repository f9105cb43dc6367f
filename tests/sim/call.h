/* SPDX-License-Identifier: MIT */
/*
 * What happens around every call into the simulated driver: it is counted, logged, delayed, failed
 * on demand, and refused before cuInit, in a forked child, and after the driver was torn down at
 * exit. Thread-safe; errno is kept.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "shim/bind/cuda_abi.h"
#include "tests/sim/knobs.h"

enum simb_flavour {
	SIMB_LEGACY, /* a NULL stream is the legacy default stream */
	SIMB_PTSZ,   /* a NULL stream is the calling thread's default stream */
};

enum simb_when {
	SIMB_ANY,  /* answers before cuInit too */
	SIMB_INIT, /* NOT_INITIALIZED before cuInit */
};

struct simb_call {
	int name;                /* index into simb_names */
	uint64_t start_ns;       /* when it began; 0 if it has no latency */
	int saved_errno;         /* the caller's */
	enum simb_flavour outer; /* flavour of the call this one is nested in */
	int outer_name;          /* index of that call, -1: none */
};

/* 0: go on with the body; otherwise the code to answer.
 * Pairs with simb_call_leave(), which returns the result. */
int simb_call_enter(struct simb_call *call, int name, enum simb_flavour flavour,
		    enum simb_when when);
CUresult simb_call_leave(struct simb_call *call, int rc);

/* The answer of a name that is not built. */
CUresult simb_call_missing(int name);
/* The same for something that a built entry point cannot do: one line on stderr, NOT_SUPPORTED. */
int simb_unbuilt(const char *what);
/* A mistake of the program that the engine cannot see:
 * logged, fatal with SIMCUDA_STRICT=1. Returns code. */
int simb_misuse(int code, const char *what);

/* One line on stderr that names the call under way. */
void simb_note(const char *what);
/* Delays for n_bytes allocated by the call under way,
 * where SIMCUDA_LATENCY has a figure per MiB. */
void simb_charge(size_t n_bytes);

/* The stream that a stream argument means in the call under way. */
CUstream simb_stream(CUstream stream);

/* Index of the name whose call is under way in this thread, -1: none. */
int simb_call_name(void);

/* cuInit's part: starts the engine. Repeated calls are fine. */
int simb_start(void);

/* Knobs of this process, read at the first call. */
const struct simb_knobs *simb_knobs(void);

/* ------------------------------------------------- figures, for stats.c --- */
enum simb_phase {
	SIMB_PHASE_NEW,    /* before cuInit */
	SIMB_PHASE_UP,     /* engine started */
	SIMB_PHASE_DOWN,   /* exit handlers have run */
	SIMB_PHASE_FORKED, /* child of a process that had called cuInit */
};
enum simb_phase simb_phase(void);
uint64_t simb_calls(int name);
uint64_t simb_calls_all(void);
uint64_t simb_calls_missing(int name);
uint64_t simb_injected(void);
