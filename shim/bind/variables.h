/* SPDX-License-Identifier: MIT */
/*
 * Variables of the program that are named like functions of ours: some libraries keep the driver's
 * functions in exported variables with the driver's own names. Since our exports stand in front of
 * them, the loader gives such a library the address of our function for its own variable, and the
 * library would store into our code.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/*
 * Puts back the variables of what was loaded since the last time; `generation` is
 * ca_object_generation() of now. For what is loaded at start that is done before any constructor
 * runs. Early, thread-safe, keeps errno; may wait for a dlopen in another thread to end, as dlsym
 * does.
 */
void ca_variables_restore(uint64_t generation);
/* The process is a child of the one that was started. */
bool ca_variables_in_forked_child(void);
