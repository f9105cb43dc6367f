/* SPDX-License-Identifier: MIT */
/*
 * .eh_frame_hdr is a sorted table of (function, its description); the description (FDE) names a
 * shared part (CIE) and is a little program that makes one row of rules for each stretch of the
 * function. The program is run until the row of the asked place is complete.
 *
 * Each step either moves the reading position forward or ends in "unknown", so it ends.
 */
#include "shim/cfi.h"

#include <stddef.h>
#include <string.h>

#include "shim/cfi_program.h"

enum {
	HDR_VERSION = 1,
	PCREL_SDATA4 = 0x1b,
	UDATA4 = 0x03,
	DATAREL_SDATA4 = 0x3b,
};

/* A record of .eh_frame without its length. bad: not in the object, or of a form unknown here. */
static struct ca_cfi_bytes
record_at(const struct ca_object *object, uintptr_t address)
{
	struct ca_cfi_bytes bytes = { .bad = true };
	uint32_t length;

	if (!ca_object_holds(object, address) || !ca_object_holds(object, address + 3))
		return bytes;
	memcpy(&length, (const void *)address, sizeof(length));
	if (length < 4 || length >= 0xfffffff0 ||
	    !ca_object_holds(object, address + sizeof(length) + length - 1))
		return bytes;
	bytes.at = (const uint8_t *)address + sizeof(length);
	bytes.end = bytes.at + length;
	bytes.bad = false;
	return bytes;
}

/* What the letters of the augmentation announce; only "z", "R", "P" and "L" are understood. */
static void
read_augmentation(struct ca_cfi_bytes *cie, const char *letters)
{
	unsigned encoding = 0, other;
	uint64_t size;

	if (*letters++ != 'z') {
		cie->bad = true;
		return;
	}
	size = ca_cfi_uleb(cie);
	if (cie->bad || (uint64_t)(cie->end - cie->at) < size) {
		cie->bad = true;
		return;
	}
	struct ca_cfi_bytes data = { .at = cie->at, .end = cie->at + size };

	ca_cfi_skip(cie, size);
	for (; *letters && !data.bad; letters++) {
		if (*letters == 'R') {
			encoding = (unsigned)ca_cfi_fixed(&data, 1);
		} else if (*letters == 'L') {
			ca_cfi_fixed(&data, 1);
		} else if (*letters == 'P') {
			other = (unsigned)ca_cfi_fixed(&data, 1);
			ca_cfi_skip(&data, (other & 7) == 3 ? 4 : 8); /* 4 bytes, or an address */
		} else {
			data.bad = true;
		}
	}
	cie->bad = data.bad || encoding != PCREL_SDATA4;
}

/* Runs the shared part. */
static bool
run_cie(const struct ca_object *object, uintptr_t address, struct ca_cfi_program *program)
{
	struct ca_cfi_bytes cie = record_at(object, address);
	const char *letters;
	unsigned version;
	uint64_t reg;

	if (ca_cfi_fixed(&cie, 4) != 0)
		return false;
	version = (unsigned)ca_cfi_fixed(&cie, 1);
	letters = (const char *)cie.at;
	while (ca_cfi_fixed(&cie, 1) && !cie.bad)
		;
	program->code_align = ca_cfi_uleb(&cie);
	program->data_align = ca_cfi_sleb(&cie);
	reg = version == 1 ? ca_cfi_fixed(&cie, 1) : ca_cfi_uleb(&cie);
	if (cie.bad || (version != 1 && version != 3) || reg != CA_CFI_RA)
		return false;
	read_augmentation(&cie, letters);
	program->location = 0;
	if (cie.bad || !ca_cfi_run(program, cie))
		return false;
	program->first = program->row;
	return true;
}

static bool
run_fde(const struct ca_object *object, uintptr_t address, struct ca_cfi_program *program)
{
	struct ca_cfi_bytes fde = record_at(object, address);
	uintptr_t cie = (uintptr_t)fde.at, begin;
	uint64_t size;

	cie -= ca_cfi_fixed(&fde, 4);
	begin = (uintptr_t)fde.at;
	begin += (uintptr_t)(intptr_t)(int32_t)ca_cfi_fixed(&fde, 4);
	size = ca_cfi_fixed(&fde, 4);
	ca_cfi_skip(&fde, ca_cfi_uleb(&fde));
	if (fde.bad || program->wanted - begin >= size || !run_cie(object, cie, program))
		return false;
	program->location = begin;
	return ca_cfi_run(program, fde);
}

/* The description of the last function that begins at or below `pc`; 0: none. */
static uintptr_t
find_fde(const struct ca_object *object, uintptr_t pc)
{
	uintptr_t hdr = 0, size = 0;
	const uint8_t *head;
	const int32_t *table;
	uint32_t low = 0, high;

	for (unsigned i = 0; i < object->phdr_count; i++)
		if (object->phdr[i].p_type == PT_GNU_EH_FRAME) {
			hdr = object->base + object->phdr[i].p_vaddr;
			size = object->phdr[i].p_memsz;
		}
	head = (const uint8_t *)hdr;
	if (size < 12 || hdr % 4 || head[0] != HDR_VERSION || head[1] != PCREL_SDATA4 ||
	    head[2] != UDATA4 || head[3] != DATAREL_SDATA4)
		return 0;
	memcpy(&high, head + 8, sizeof(high));
	if (!high || high > (size - 12) / 8)
		return 0;
	table = (const int32_t *)(hdr + 12);
	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		if (hdr + (uintptr_t)(intptr_t)table[2 * (size_t)middle] <= pc)
			low = middle;
		else
			high = middle;
	}
	return hdr + (uintptr_t)(intptr_t)table[2 * (size_t)low + 1];
}

static bool
fits(int64_t value)
{
	return value >= INT16_MIN && value <= INT16_MAX;
}

bool
ca_cfi_find(const struct ca_object *object, uintptr_t pc, struct ca_cfi_rule *ret_rule)
{
	struct ca_cfi_program program = { .wanted = pc, .row.ra = CA_CFI_IN_REGISTER };
	const struct ca_cfi_row *row = &program.row;
	uintptr_t fde = find_fde(object, pc);

	if (!fde || !run_fde(object, fde, &program) || !row->cfa_known || row->cfa_offset <= 0 ||
	    row->cfa_offset > UINT16_MAX || row->cfa_offset % 8 || row->ra != CA_CFI_ON_STACK ||
	    !fits(row->ra_offset) || !fits(row->fp_offset) ||
	    (row->cfa_register != CA_CFI_FP && row->cfa_register != CA_CFI_SP))
		return false;
	*ret_rule = (struct ca_cfi_rule){
		.from_fp = row->cfa_register == CA_CFI_FP,
		.frame = (uint16_t)row->cfa_offset,
		.return_to = (int16_t)row->ra_offset,
		.fp = row->fp == CA_CFI_IN_REGISTER ? CA_CFI_FP_SAME
		      : row->fp == CA_CFI_ON_STACK  ? CA_CFI_FP_SAVED
						    : CA_CFI_FP_LOST,
		.fp_saved = (int16_t)row->fp_offset,
	};
	return true;
}
