/* SPDX-License-Identifier: MIT */
/*
 * From a hook up to who called it: one frame at a time, by the objects' call frame information
 * (shim/cfi.h). No malloc, no dlopen, no lock of ours; the loader's own is held for a moment when a
 * place is seen for the first time (dl_iterate_phdr), so that the object cannot go meanwhile. What
 * was learnt of a place is kept in a small table.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct ca_frame {
	uintptr_t pc;          /* where it goes on when its callee returns */
	uintptr_t sp;          /* stack pointer then */
	uintptr_t fp;          /* frame pointer then; 0: not known */
	const uintptr_t *kept; /* where on the stack pc was found; NULL in the first frame */
};

/* The frame that called the function this stands in. */
#if defined(__x86_64__)
#define CA_FRAME_SP_OF_CALLER() ((uintptr_t)__builtin_frame_address(0) + 16)
#else
#define CA_FRAME_SP_OF_CALLER() ((uintptr_t)__builtin_dwarf_cfa())
#endif
#define CA_FRAME_OF_CALLER()                                                                       \
	((struct ca_frame){ .pc = (uintptr_t)__builtin_return_address(0),                          \
			    .sp = CA_FRAME_SP_OF_CALLER(),                                         \
			    .fp = *(const uintptr_t *)__builtin_frame_address(0) })

/*
 * Goes to the caller of *frame. False: unknown, *frame is unchanged. `generation`: of the loaded
 * objects (shim/object.h); what was kept of another one is not used.
 */
bool ca_frame_up(struct ca_frame *frame, uint64_t generation);
