/* SPDX-License-Identifier: MIT */
/*
 * The little programs of call frame information (DWARF 4, section 6.4.2), for shim/cfi.c: numbers
 * are read from a stretch of bytes, instructions change a row of rules. Nothing is read outside the
 * stretch, each step moves forward in it, and what is not understood makes it bad.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* DWARF's numbers of frame pointer, stack pointer and return address */
#if defined(__x86_64__)
enum { CA_CFI_FP = 6, CA_CFI_SP = 7, CA_CFI_RA = 16 };
#elif defined(__aarch64__)
enum { CA_CFI_FP = 29, CA_CFI_SP = 31, CA_CFI_RA = 30 };
#endif
enum { CA_CFI_REMEMBERED_MAX = 4 };

struct ca_cfi_bytes {
	const uint8_t *at, *end;
	bool bad; /* read past the end, or something unknown */
};

/* Where a register of the caller is. */
enum ca_cfi_place {
	CA_CFI_IN_REGISTER,
	CA_CFI_ON_STACK,
	CA_CFI_UNKNOWN,
};

struct ca_cfi_row {
	unsigned cfa_register;
	int64_t cfa_offset;
	bool cfa_known;
	enum ca_cfi_place fp, ra;
	int64_t fp_offset, ra_offset; /* from the caller's stack pointer */
};

struct ca_cfi_program {
	struct ca_cfi_row row, first, remembered[CA_CFI_REMEMBERED_MAX];
	unsigned n_remembered;
	uint64_t code_align;
	int64_t data_align;
	uintptr_t location, wanted;
};

/* 0 where there are not so many bytes left. */
uint64_t ca_cfi_fixed(struct ca_cfi_bytes *bytes, unsigned size);
uint64_t ca_cfi_uleb(struct ca_cfi_bytes *bytes);
int64_t ca_cfi_sleb(struct ca_cfi_bytes *bytes);
void ca_cfi_skip(struct ca_cfi_bytes *bytes, uint64_t size);

/* Runs until the row of program->wanted is complete. False: unknown. */
bool ca_cfi_run(struct ca_cfi_program *program, struct ca_cfi_bytes bytes);
