/* SPDX-License-Identifier: MIT */
/*
 * A program on the backend (backend.h) that says what it sees: a line for each call with its
 * outcome and what is used. Addresses and reserved bytes are not in it, so that it is the same on
 * every allocator that keeps the backend's promises. What is reserved is compared with what the
 * simulator has given, on the spot.
 *
 * Contents and order are those of tests/stress/world.h: a tensor's uses on other streams than its
 * own are ordered by the program, and recorded.
 */
#pragma once

#include "tests/process/pool_model/backend.h"
#include "tests/stress/world.h"

enum { TENSORS_MAX = 48 };

struct tensor {
	struct block b;
	int slot; /* that it was allocated on */
};

struct play {
	struct rng rng;
	int n_devices;
	struct world worlds[BACKEND_DEVICES_MAX];
	struct tensor tensors[TENSORS_MAX];
	int n_tensors;
	uint64_t baseline[BACKEND_DEVICES_MAX]; /* bytes that the simulator had given before */
	bool peaks_were_reset, captured, retries;
	bool compares; /* reserved bytes with the simulator's */
	unsigned long line;
};

void play_open(struct play *p, uint64_t seed, int n_devices, int n_streams, bool retry);
/* Frees everything, says what is left, and ends the program with status 1 on wrong contents. */
int play_close(struct play *p);

/* Prints a line: what, its outcome, and the figures of the device. */
void play_say(struct play *p, const char *what, size_t n_bytes, int outcome, int device);

/* NULL: it was not had. */
struct tensor *play_malloc(struct play *p, int device, int slot, size_t n_bytes);
void play_free(struct play *p, int i);
/* A kernel on the slot. */
void play_use(struct play *p, struct tensor *t, int slot);
void play_sync(struct play *p, int device);

/* random.c, capture.c, short.c */
void play_random(struct play *p, long operations);
void play_capture(struct play *p, int device);
void play_short_of_memory(struct play *p);
