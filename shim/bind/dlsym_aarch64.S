/* SPDX-License-Identifier: MIT */
/*
 * dlsym(handle, name) and dlvsym(handle, name, version) for aarch64: ask the route; on an answer
 * return it, otherwise branch where it says.
 *
 * The branch, not a call, is the point: the real function finds its caller by the link register, and
 * RTLD_NEXT, RTLD_DEFAULT and RUNPATH depend on it. Every argument register arrives there as it
 * came. x16 holds the target, as `bti c` at its entry demands.
 *
 * dlvsym is missing under the thread sanitizer, where dl_iterate_phdr is found by libc's.
 */
	.macro	trampoline route, caller
	.cfi_startproc
	hint	#34			/* bti c */
	stp	x29, x30, [sp, #-80]!
	.cfi_def_cfa_offset 80
	.cfi_offset 29, -80
	.cfi_offset 30, -72
	mov	x29, sp
	stp	x0, x1, [sp, #16]
	stp	x2, x3, [sp, #32]
	stp	x4, x5, [sp, #48]
	stp	x6, x7, [sp, #64]
	mov	\caller, x30		/* the caller's address: last argument of the route */
	bl	\route			/* x0: the answer or 0; x1: where to branch or 0 */
	mov	x17, x0
	mov	x16, x1
	ldp	x0, x1, [sp, #16]
	ldp	x2, x3, [sp, #32]
	ldp	x4, x5, [sp, #48]
	ldp	x6, x7, [sp, #64]
	ldp	x29, x30, [sp], #80
	.cfi_def_cfa_offset 0
	.cfi_restore 29
	.cfi_restore 30
	cbz	x17, 1f
	mov	x0, x17
	ret
1:	cbz	x16, 2f
	br	x16
2:	mov	x0, #0			/* no such function in this process but ours */
	ret
	.cfi_endproc
	.endm

	.text
	.globl	dlsym
	.globl	ca_dlsym_trampoline
	.hidden	ca_dlsym_trampoline
	.set	ca_dlsym_trampoline, dlsym
	.type	dlsym, %function
	.p2align 4
dlsym:
	trampoline ca_dlsym_route, x2
	.size	dlsym, . - dlsym

#ifndef CA_SANITIZE_THREAD
	.globl	dlvsym
	.type	dlvsym, %function
	.p2align 4
dlvsym:
	trampoline ca_dlvsym_route, x3
	.size	dlvsym, . - dlvsym
#endif

	.hidden	ca_dlsym_route
	.hidden	ca_dlvsym_route
	.section .note.GNU-stack, "", %progbits
