/* SPDX-License-Identifier: MIT */
/*
 * dlsym(handle, name) for aarch64: ask ca_dlsym_route; on an answer return it, otherwise branch to the next dlsym.
 *
 * The branch, not a call, is the point: the next dlsym finds its caller by the link register, and RTLD_NEXT,
 * RTLD_DEFAULT and RUNPATH depend on it. Every argument register arrives there as it came. x16 holds the
 * target, as `bti c` at its entry demands.
 */
	.text
	.globl	dlsym
	.globl	ca_dlsym_trampoline
	.hidden	ca_dlsym_trampoline
	.set	ca_dlsym_trampoline, dlsym
	.type	dlsym, %function
	.p2align 4
dlsym:
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
	mov	x2, x30			/* the caller's address: third argument of the route */
	bl	ca_dlsym_route
	mov	x16, x0
	ldp	x0, x1, [sp, #16]
	ldp	x2, x3, [sp, #32]
	ldp	x4, x5, [sp, #48]
	ldp	x6, x7, [sp, #64]
	ldp	x29, x30, [sp], #80
	.cfi_def_cfa_offset 0
	.cfi_restore 29
	.cfi_restore 30
	cbz	x16, 1f
	mov	x0, x16
	ret
1:	adrp	x16, ca_dlsym_next
	ldr	x16, [x16, #:lo12:ca_dlsym_next]
	cbz	x16, 2f
	br	x16
2:	mov	x0, #0			/* no dlsym in this process but ours */
	ret
	.cfi_endproc
	.size	dlsym, . - dlsym

	.hidden	ca_dlsym_route
	.hidden	ca_dlsym_next
	.section .note.GNU-stack, "", %progbits
