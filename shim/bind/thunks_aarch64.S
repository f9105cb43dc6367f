/* SPDX-License-Identifier: MIT */
/*
 * Thunks for aarch64.
 *
 * Counting thunk i counts one call and branches to ca_thunk_targets[i]. Only x14 to x17 are used,
 * which no signature passes anything in. While an alarm is set (the first call), ca_unseen_raise is
 * called before the branch.
 *
 * Registration thunk i calls ca_registration_enter(i, arguments) and then branches to
 * ca_registration_targets[i]; the real function returns to the caller itself.
 *
 * x0-x7, x8 (the address of a returned struct), v0-v7 and the stack stay as they are. x16 holds the
 * target, as `bti c` at its entry demands.
 */
#include "shim/bind/thunks.h"

/* Calls \function(w17, arguments) and keeps x0-x8, x17, v0-v7 and the stack around it. */
	.macro	call_kept function
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
	bl	\function
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
	.endm

	.text
	.globl	ca_thunks
	.hidden	ca_thunks
	.type	ca_thunks, %function
	.p2align 6
ca_thunks:
	.cfi_startproc
	.set	thunk, 0
	.rept	CA_THUNK_COUNT
	.p2align 6
	hint	#34			/* bti c */
	mov	w17, #thunk
	b	ca_thunk_count
	.set	thunk, thunk + 1
	.endr
	.p2align 6
	.cfi_endproc
	.size	ca_thunks, . - ca_thunks

	.type	ca_thunk_count, %function
ca_thunk_count:
	.cfi_startproc
	adrp	x16, ca_thunk_alarm
	ldr	x16, [x16, #:lo12:ca_thunk_alarm]
	cbz	x16, 1f
	call_kept ca_unseen_raise
1:	adrp	x16, ca_thunk_calls
	add	x16, x16, #:lo12:ca_thunk_calls
2:	ldxr	x15, [x16]
	add	x15, x15, #1
	stxr	w14, x15, [x16]
	cbnz	w14, 2b
	adrp	x16, ca_thunk_targets
	add	x16, x16, #:lo12:ca_thunk_targets
	ldr	x16, [x16, x17, lsl #3]
	br	x16
	.cfi_endproc
	.size	ca_thunk_count, . - ca_thunk_count

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
	b	ca_thunk_register
	.set	thunk, thunk + 1
	.endr
	.p2align 4
	.cfi_endproc
	.size	ca_registration_thunks, . - ca_registration_thunks

	.type	ca_thunk_register, %function
ca_thunk_register:
	.cfi_startproc
	call_kept ca_registration_enter
	adrp	x16, ca_registration_targets
	add	x16, x16, #:lo12:ca_registration_targets
	ldr	x16, [x16, x17, lsl #3]
	br	x16
	.cfi_endproc
	.size	ca_thunk_register, . - ca_thunk_register

	.hidden	ca_thunk_alarm
	.hidden	ca_unseen_raise
	.hidden	ca_thunk_calls
	.hidden	ca_thunk_targets
	.hidden	ca_registration_targets
	.hidden	ca_registration_enter
	.section .note.GNU-stack, "", %progbits
