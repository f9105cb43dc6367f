/* SPDX-License-Identifier: MIT */
/*
 * Counting thunks for aarch64: thunk i counts one call and branches to ca_thunk_targets[i].
 *
 * Only x14 to x17 are used, which no signature passes anything in; x8 (the address of a returned
 * struct), x0-x7, v0-v7 and the stack stay as they are.
 */
#include "shim/thunks.h"

	.text
	.globl	ca_thunks
	.hidden	ca_thunks
	.type	ca_thunks, %function
	.p2align 5
ca_thunks:
	.cfi_startproc
	.set	thunk, 0
	.rept	CA_THUNK_COUNT
	.p2align 5
	hint	#34			/* bti c */
	mov	w17, #thunk
	b	ca_thunk_count
	.set	thunk, thunk + 1
	.endr
	.p2align 5
	.cfi_endproc
	.size	ca_thunks, . - ca_thunks

	.type	ca_thunk_count, %function
ca_thunk_count:
	.cfi_startproc
	adrp	x16, ca_thunk_targets
	add	x16, x16, #:lo12:ca_thunk_targets
	ldr	x17, [x16, x17, lsl #3]
	adrp	x16, ca_thunk_calls
	add	x16, x16, #:lo12:ca_thunk_calls
1:	ldxr	x15, [x16]
	add	x15, x15, #1
	stxr	w14, x15, [x16]
	cbnz	w14, 1b
	mov	x16, x17
	br	x16
	.cfi_endproc
	.size	ca_thunk_count, . - ca_thunk_count

	.hidden	ca_thunk_calls
	.hidden	ca_thunk_targets
	.section .note.GNU-stack, "", %progbits
