/* SPDX-License-Identifier: MIT */
/*
 * Counting thunks for x86-64: thunk i counts one call and jumps to ca_thunk_targets[i].
 *
 * No register, no stack slot and no vector state is touched (flags only), so any signature passes
 * through. While an alarm is set (the first call), it is raised before the jump: every register
 * that can carry an argument is kept around it.
 */
#include "shim/bind/thunks.h"

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
	.cfi_startproc
	pushq	%rdi
	pushq	%rsi
	pushq	%rdx
	pushq	%rcx
	pushq	%r8
	pushq	%r9
	pushq	%rax
	pushq	%r10
	pushq	%r11
	.cfi_adjust_cfa_offset 72
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
	call	ca_unseen_raise
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
	popq	%r11
	popq	%r10
	popq	%rax
	popq	%r9
	popq	%r8
	popq	%rcx
	popq	%rdx
	popq	%rsi
	popq	%rdi
	.cfi_adjust_cfa_offset -72
	pushq	%r10
	.cfi_adjust_cfa_offset 8
	leaq	ca_thunk_targets(%rip), %r10
	movq	(%r10,%r11,8), %r11
	popq	%r10
	.cfi_adjust_cfa_offset -8
	jmp	*%r11
	.cfi_endproc
	.size	ca_thunk_raise, . - ca_thunk_raise

	.hidden	ca_thunk_alarm
	.hidden	ca_thunk_calls
	.hidden	ca_thunk_targets
	.hidden	ca_unseen_raise
	.section .note.GNU-stack, "", @progbits
#ifdef __CET__
#include <cet.h>
#endif
