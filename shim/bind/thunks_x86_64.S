/* SPDX-License-Identifier: MIT */
/*
 * Thunks for x86-64.
 *
 * Counting thunk i counts one call and jumps to ca_thunk_targets[i]. No register, no stack slot and
 * no vector state is touched (flags only), so any signature passes through. While an alarm is set
 * (the first call), ca_unseen_raise is called before the jump.
 *
 * Registration thunk i calls ca_registration_enter(i, arguments) and then jumps to
 * ca_registration_targets[i].
 *
 * Around both calls every register that can carry an argument, and the stack, are kept; the real
 * function returns to the caller itself.
 */
#include "shim/bind/thunks.h"

/* Calls \function(thunk, arguments) and jumps to \targets[thunk]; the number of the thunk is in r11. */
	.macro	call_and_jump function, targets
	.cfi_startproc
	pushq	%r11
	pushq	%r10
	pushq	%rax
	pushq	%r9			/* from the last one up, the six arguments */
	pushq	%r8
	pushq	%rcx
	pushq	%rdx
	pushq	%rsi
	pushq	%rdi
	.cfi_adjust_cfa_offset 72
	movl	%r11d, %edi
	movq	%rsp, %rsi
	subq	$128, %rsp		/* now a multiple of 16 */
	.cfi_adjust_cfa_offset 128
	movaps	%xmm0, (%rsp)
	movaps	%xmm1, 16(%rsp)
	movaps	%xmm2, 32(%rsp)
	movaps	%xmm3, 48(%rsp)
	movaps	%xmm4, 64(%rsp)
	movaps	%xmm5, 80(%rsp)
	movaps	%xmm6, 96(%rsp)
	movaps	%xmm7, 112(%rsp)
	call	\function
	movaps	(%rsp), %xmm0
	movaps	16(%rsp), %xmm1
	movaps	32(%rsp), %xmm2
	movaps	48(%rsp), %xmm3
	movaps	64(%rsp), %xmm4
	movaps	80(%rsp), %xmm5
	movaps	96(%rsp), %xmm6
	movaps	112(%rsp), %xmm7
	addq	$128, %rsp
	.cfi_adjust_cfa_offset -128
	popq	%rdi
	popq	%rsi
	popq	%rdx
	popq	%rcx
	popq	%r8
	popq	%r9
	popq	%rax
	popq	%r10
	popq	%r11
	.cfi_adjust_cfa_offset -72
	pushq	%r10
	.cfi_adjust_cfa_offset 8
	leaq	\targets(%rip), %r10
	movq	(%r10,%r11,8), %r11
	popq	%r10
	.cfi_adjust_cfa_offset -8
	jmp	*%r11
	.cfi_endproc
	.endm

	.text
	.globl	ca_thunks
	.hidden	ca_thunks
	.type	ca_thunks, @function
	.p2align 6
ca_thunks:
	.cfi_startproc
	.set	thunk, 0
	.rept	CA_THUNK_COUNT
	.p2align 6
	endbr64
	lock incq ca_thunk_calls(%rip)
	cmpq	$0, ca_thunk_alarm(%rip)
	jne	1f
	jmp	*(ca_thunk_targets + 8 * thunk)(%rip)
1:	movl	$thunk, %r11d
	jmp	ca_thunk_raise
	.set	thunk, thunk + 1
	.endr
	.p2align 6
	.cfi_endproc
	.size	ca_thunks, . - ca_thunks

	.type	ca_thunk_raise, @function
ca_thunk_raise:
	call_and_jump ca_unseen_raise, ca_thunk_targets
	.size	ca_thunk_raise, . - ca_thunk_raise

	.globl	ca_registration_thunks
	.hidden	ca_registration_thunks
	.type	ca_registration_thunks, @function
	.p2align 6
ca_registration_thunks:
	.cfi_startproc
	.set	thunk, 0
	.rept	CA_REGISTRATION_THUNKS
	.p2align 4
	endbr64
	movl	$thunk, %r11d
	jmp	ca_thunk_register
	.set	thunk, thunk + 1
	.endr
	.p2align 4
	.cfi_endproc
	.size	ca_registration_thunks, . - ca_registration_thunks

	.type	ca_thunk_register, @function
ca_thunk_register:
	call_and_jump ca_registration_enter, ca_registration_targets
	.size	ca_thunk_register, . - ca_thunk_register

	.hidden	ca_thunk_alarm
	.hidden	ca_thunk_calls
	.hidden	ca_thunk_targets
	.hidden	ca_unseen_raise
	.hidden	ca_registration_targets
	.hidden	ca_registration_enter
	.section .note.GNU-stack, "", @progbits
#ifdef __CET__
#include <cet.h>
#endif
