/* SPDX-License-Identifier: MIT */
/*
 * Registration thunks for x86-64: thunk i calls ca_registration_enter(i, arguments) and then jumps
 * to ca_registration_targets[i]. Every register that can carry an argument, and the stack, are as
 * they were; the real function returns to the caller itself.
 */
#include "shim/bind/registration_thunks.h"

	.text
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
	jmp	enter
	.set	thunk, thunk + 1
	.endr
	.p2align 4
	.cfi_endproc
	.size	ca_registration_thunks, . - ca_registration_thunks

	.type	enter, @function
enter:
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
	call	ca_registration_enter
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
	leaq	ca_registration_targets(%rip), %r10
	movq	(%r10,%r11,8), %r11
	popq	%r10
	.cfi_adjust_cfa_offset -8
	jmp	*%r11
	.cfi_endproc
	.size	enter, . - enter

	.hidden	ca_registration_targets
	.hidden	ca_registration_enter
	.section .note.GNU-stack, "", @progbits
#ifdef __CET__
#include <cet.h>
#endif
