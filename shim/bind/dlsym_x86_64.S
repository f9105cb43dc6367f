/* SPDX-License-Identifier: MIT */
/*
 * dlsym(handle, name) and dlvsym(handle, name, version) for x86-64: ask the route; on an answer
 * return it, otherwise jump where it says.
 *
 * The jump, not a call, is the point: the real function finds its caller by the return address on
 * the stack, and RTLD_NEXT, RTLD_DEFAULT and RUNPATH depend on it. No compiler option can break that
 * here. Every argument register arrives there as it came.
 *
 * dlvsym is missing under the thread sanitizer, where dl_iterate_phdr is found by libc's.
 */
	.macro	trampoline route, caller
	.cfi_startproc
	endbr64
	pushq	%rdi
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %rdi, 0
	pushq	%rsi
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %rsi, 0
	pushq	%rdx
	.cfi_adjust_cfa_offset 8
	pushq	%rcx
	.cfi_adjust_cfa_offset 8
	pushq	%r8
	.cfi_adjust_cfa_offset 8
	pushq	%r9
	.cfi_adjust_cfa_offset 8
	subq	$8, %rsp
	.cfi_adjust_cfa_offset 8
	movq	56(%rsp), \caller	/* the caller's address: last argument of the route */
	call	\route			/* rax: the answer or 0; rdx: where to jump or 0 */
	movq	%rdx, %r11
	addq	$8, %rsp
	.cfi_adjust_cfa_offset -8
	popq	%r9
	.cfi_adjust_cfa_offset -8
	popq	%r8
	.cfi_adjust_cfa_offset -8
	popq	%rcx
	.cfi_adjust_cfa_offset -8
	popq	%rdx
	.cfi_adjust_cfa_offset -8
	popq	%rsi
	.cfi_adjust_cfa_offset -8
	.cfi_restore %rsi
	popq	%rdi
	.cfi_adjust_cfa_offset -8
	.cfi_restore %rdi
	testq	%rax, %rax
	je	1f
	ret
1:	testq	%r11, %r11
	je	2f
	jmp	*%r11
2:	ret				/* no such function in this process but ours: NULL */
	.cfi_endproc
	.endm

	.text
	.globl	dlsym
	.globl	ca_dlsym_trampoline
	.hidden	ca_dlsym_trampoline
	.set	ca_dlsym_trampoline, dlsym
	.type	dlsym, @function
	.p2align 4
dlsym:
	trampoline ca_dlsym_route, %rdx
	.size	dlsym, . - dlsym

#ifndef CA_SANITIZE_THREAD
	.globl	dlvsym
	.type	dlvsym, @function
	.p2align 4
dlvsym:
	trampoline ca_dlvsym_route, %rcx
	.size	dlvsym, . - dlvsym
#endif

	.hidden	ca_dlsym_route
	.hidden	ca_dlvsym_route
	.section .note.GNU-stack, "", @progbits
#ifdef __CET__
#include <cet.h>
#endif
