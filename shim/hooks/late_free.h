/* SPDX-License-Identifier: MIT */
/*
 * Frees that arrive inside a call of the driver: it has called the program back (CUPTI,
 * cuLogsRegisterCallback).
 *
 * Such a free must not reach the driver, to which the address of a block is that of a segment with
 * other live blocks in it, or of none. Nor can it be done at once, since this thread may be in the
 * midst of what a free waits for, and the call's own work is not known before it has returned. So
 * it is answered, and done by the same thread: at its next free, or when its next allocation looks
 * around; or by any once the thread has ended. Every stream that works then is taken for a user.
 */
#pragma once

#include <stdbool.h>

#include "shim/bind/cuda_abi.h"

/* False: not ours, for the driver to free. True: *ret_rc is the answer; CUDA_ERROR_OUT_OF_MEMORY:
 * the host has no memory for the note, and nothing was freed. Keeps errno. */
bool ca_late_free_note(CUdeviceptr dptr, CUresult *ret_rc);
/* Not inside the driver. Keeps errno. */
void ca_late_free_all(void);
