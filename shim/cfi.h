/* SPDX-License-Identifier: MIT */
/*
 * Call frame information: how to get from a place in a function to its caller, read from the
 * object's .eh_frame by its .eh_frame_hdr (Linux Standard Base, "Exception Frames"; DWARF 4,
 * section 6.4).
 *
 * Only what compilers write for ordinary functions is understood: a frame found from the stack or
 * frame pointer plus a number, and registers saved at fixed places. Anything else (expressions,
 * signal frames, signed return addresses, odd encodings) is "unknown", never a guess. Pure reading;
 * no malloc, no lock; errno kept.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "shim/object.h"

enum ca_cfi_fp {
	CA_CFI_FP_SAME,  /* the caller's frame pointer is still in the register */
	CA_CFI_FP_SAVED, /* it is on the stack */
	CA_CFI_FP_LOST,
};

/* Offsets in bytes. */
struct ca_cfi_rule {
	bool from_fp;      /* the frame is found from the frame pointer; else from the stack's */
	uint16_t frame;    /* the caller's stack pointer is that register plus this; never 0 */
	int16_t return_to; /* where the return address is, from the caller's stack pointer */
	enum ca_cfi_fp fp; /* of the caller */
	int16_t fp_saved;  /* where, from the caller's stack pointer */
};

/* For the instruction at `pc` of `object`, which holds it. False: unknown. */
bool ca_cfi_find(const struct ca_object *object, uintptr_t pc, struct ca_cfi_rule *ret_rule);
