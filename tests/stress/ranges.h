/* SPDX-License-Identifier: MIT */
/*
 * The device addresses that are allocated now, over all threads and contexts. Thread-safe. A range
 * must be removed before it is freed, because its addresses may be given out again from then on.
 */
#pragma once

#include <stddef.h>

/* Ends the program with status 1 when the range overlaps one that is allocated. */
void range_add(unsigned long long ptr, size_t n_bytes);

void range_remove(unsigned long long ptr);
