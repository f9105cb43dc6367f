/* SPDX-License-Identifier: MIT */
/*
 * Registration thunks for aarch64: thunk i calls ca_registration_enter(i, arguments) and then
 * branches to ca_registration_targets[i]. x0-x8, v0-v7 and the stack are as they were; the real
 * function returns to the caller itself. x16 holds the target, as `bti c` at its entry demands.
 */
#include "shim/bind/registration_thunks.h"

	.text
	.globl	ca_registration_thunks
	.hidden	ca_registration_thunks
	.type	ca_registration_thunks, %function
	.p2align 6
ca_registration_thunks:
	.cfi_startproc
	.set	thunk, 0
	.rept	CA_REGISTRATION_THUNKS
	.p2align 4
	hint	#34			/* bti c */
	mov	w17, #thunk
	b	enter
	.set	thunk, thunk + 1
	.endr
	.p2align 4
	.cfi_endproc
	.size	ca_registration_thunks, . - ca_registration_thunks

	.type	enter, %function
enter:
	.cfi_startproc
	stp	x29, x30, [sp, #-224]!
	.cfi_adjust_cfa_offset 224
	.cfi_rel_offset x29, 0
	.cfi_rel_offset x30, 8
	mov	x29, sp
	stp	x0, x1, [sp, #16]
	stp	x2, x3, [sp, #32]
	stp	x4, x5, [sp, #48]
	stp	x6, x7, [sp, #64]
	stp	x8, x17, [sp, #80]
	stp	q0, q1, [sp, #96]
	stp	q2, q3, [sp, #128]
	stp	q4, q5, [sp, #160]
	stp	q6, q7, [sp, #192]
	mov	w0, w17
	add	x1, sp, #16
	bl	ca_registration_enter
	ldp	x0, x1, [sp, #16]
	ldp	x2, x3, [sp, #32]
	ldp	x4, x5, [sp, #48]
	ldp	x6, x7, [sp, #64]
	ldp	x8, x17, [sp, #80]
	ldp	q0, q1, [sp, #96]
	ldp	q2, q3, [sp, #128]
	ldp	q4, q5, [sp, #160]
	ldp	q6, q7, [sp, #192]
	ldp	x29, x30, [sp], #224
	.cfi_adjust_cfa_offset -224
	.cfi_restore x29
	.cfi_restore x30
	adrp	x16, ca_registration_targets
	add	x16, x16, #:lo12:ca_registration_targets
	ldr	x16, [x16, x17, lsl #3]
	br	x16
	.cfi_endproc
	.size	enter, . - enter

	.hidden	ca_registration_targets
	.hidden	ca_registration_enter
	.section .note.GNU-stack, "", %progbits
