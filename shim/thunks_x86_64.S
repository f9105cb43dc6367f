/* SPDX-License-Identifier: MIT */
/*
 * Counting thunks for x86-64: thunk i counts one call and jumps to ca_thunk_targets[i].
 *
 * No register, no stack slot and no vector state is touched (flags only), so any signature passes
 * through.
 */
#include "shim/thunks.h"

	.text
	.globl	ca_thunks
	.hidden	ca_thunks
	.type	ca_thunks, @function
	.p2align 5
ca_thunks:
	.cfi_startproc
	.set	thunk, 0
	.rept	CA_THUNK_COUNT
	.p2align 5
	endbr64
	lock incq ca_thunk_calls(%rip)
	jmp	*(ca_thunk_targets + 8 * thunk)(%rip)
	.set	thunk, thunk + 1
	.endr
	.p2align 5
	.cfi_endproc
	.size	ca_thunks, . - ca_thunks

	.hidden	ca_thunk_calls
	.hidden	ca_thunk_targets
	.section .note.GNU-stack, "", @progbits
#ifdef __CET__
#include <cet.h>
#endif
