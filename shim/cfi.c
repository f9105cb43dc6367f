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

#if defined(__x86_64__)
enum { FP = 6, SP = 7, RA = 16 };
#elif defined(__aarch64__)
enum { FP = 29, SP = 31, RA = 30 };
#endif

enum {
	HDR_VERSION = 1,
	PCREL_SDATA4 = 0x1b,
	UDATA4 = 0x03,
	DATAREL_SDATA4 = 0x3b,
	OMITTED = 0xff,
	REMEMBERED_MAX = 4,
};

struct bytes {
	const uint8_t *at, *end;
	bool bad; /* read past the end, or something unknown */
};

/* Where a register of the caller is. */
enum place { IN_REGISTER, ON_STACK, UNKNOWN };

struct row {
	unsigned cfa_register;
	int64_t cfa_offset;
	bool cfa_known;
	enum place fp, ra;
	int64_t fp_offset, ra_offset; /* from the caller's stack pointer */
};

struct program {
	struct row row, first, remembered[REMEMBERED_MAX];
	unsigned n_remembered;
	uint64_t code_align;
	int64_t data_align;
	uintptr_t location, wanted;
};

static uint64_t
read_fixed(struct bytes *bytes, unsigned size)
{
	uint64_t value = 0;

	if (bytes->bad || (size_t)(bytes->end - bytes->at) < size) {
		bytes->bad = true;
		return 0;
	}
	memcpy(&value, bytes->at, size); /* both machines are little-endian */
	bytes->at += size;
	return value;
}

static uint64_t
read_uleb(struct bytes *bytes)
{
	uint64_t value = 0, byte;
	unsigned shift = 0;

	do {
		byte = read_fixed(bytes, 1);
		if (shift < 64)
			value |= (byte & 0x7f) << shift;
		shift += 7;
	} while (byte & 0x80);
	return value;
}

static int64_t
read_sleb(struct bytes *bytes)
{
	uint64_t value = 0, byte;
	unsigned shift = 0;

	do {
		byte = read_fixed(bytes, 1);
		if (shift < 64)
			value |= (byte & 0x7f) << shift;
		shift += 7;
	} while (byte & 0x80);
	if (shift < 64 && (byte & 0x40))
		value |= ~(uint64_t)0 << shift;
	return (int64_t)value;
}

static void
skip(struct bytes *bytes, uint64_t size)
{
	if (bytes->bad || (uint64_t)(bytes->end - bytes->at) < size)
		bytes->bad = true;
	else
		bytes->at += size;
}

static void
set_place(struct row *row, uint64_t reg, enum place place, int64_t offset)
{
	if (reg == FP) {
		row->fp = place;
		row->fp_offset = offset;
	} else if (reg == RA) {
		row->ra = place;
		row->ra_offset = offset;
	}
}

static void
restore(struct program *program, uint64_t reg)
{
	const struct row *first = &program->first;

	if (reg == FP)
		set_place(&program->row, reg, first->fp, first->fp_offset);
	else if (reg == RA)
		set_place(&program->row, reg, first->ra, first->ra_offset);
}

static void
define_frame(struct row *row, uint64_t reg, int64_t offset)
{
	row->cfa_register = (unsigned)reg;
	row->cfa_offset = offset;
	row->cfa_known = true;
}

static void
remember(struct program *program, struct bytes *bytes)
{
	if (program->n_remembered == REMEMBERED_MAX)
		bytes->bad = true;
	else
		program->remembered[program->n_remembered++] = program->row;
}

static void
recall(struct program *program, struct bytes *bytes)
{
	if (!program->n_remembered)
		bytes->bad = true;
	else
		program->row = program->remembered[--program->n_remembered];
}

/* The instructions that say where the frame is. */
static void
run_frame(struct program *program, struct bytes *bytes, unsigned op)
{
	struct row *row = &program->row;
	uint64_t reg;

	switch (op) {
	case 0x0c: /* def_cfa */
		reg = read_uleb(bytes);
		define_frame(row, reg, (int64_t)read_uleb(bytes));
		break;
	case 0x12: /* def_cfa_sf */
		reg = read_uleb(bytes);
		define_frame(row, reg, read_sleb(bytes) * program->data_align);
		break;
	case 0x0d: /* def_cfa_register */
		row->cfa_register = (unsigned)read_uleb(bytes);
		break;
	case 0x0e: /* def_cfa_offset */
		row->cfa_offset = (int64_t)read_uleb(bytes);
		break;
	case 0x13: /* def_cfa_offset_sf */
		row->cfa_offset = read_sleb(bytes) * program->data_align;
		break;
	case 0x0f: /* def_cfa_expression */
		skip(bytes, read_uleb(bytes));
		row->cfa_known = false;
		break;
	default:
		bytes->bad = true;
	}
}

/* The instructions that say where a register is. */
static void
run_register(struct program *program, struct bytes *bytes, unsigned op)
{
	struct row *row = &program->row;
	uint64_t reg = read_uleb(bytes);

	switch (op) {
	case 0x05: /* offset_extended */
		set_place(row, reg, ON_STACK, (int64_t)read_uleb(bytes) * program->data_align);
		break;
	case 0x11: /* offset_extended_sf */
		set_place(row, reg, ON_STACK, read_sleb(bytes) * program->data_align);
		break;
	case 0x06: /* restore_extended */
		restore(program, reg);
		break;
	case 0x07: /* undefined */
		set_place(row, reg, UNKNOWN, 0);
		break;
	case 0x08: /* same_value */
		set_place(row, reg, IN_REGISTER, 0);
		break;
	case 0x09: /* register */
	case 0x14: /* val_offset */
		read_uleb(bytes);
		set_place(row, reg, UNKNOWN, 0);
		break;
	case 0x15: /* val_offset_sf */
		read_sleb(bytes);
		set_place(row, reg, UNKNOWN, 0);
		break;
	default: /* 0x10 expression, 0x16 val_expression */
		skip(bytes, read_uleb(bytes));
		set_place(row, reg, UNKNOWN, 0);
	}
}

static void
run_extended(struct program *program, struct bytes *bytes, unsigned op)
{
	switch (op) {
	case 0x00: /* nop */
		break;
	case 0x02: /* advance_loc1, 2, 4 */
	case 0x03:
	case 0x04:
		program->location += read_fixed(bytes, 1u << (op - 2)) * program->code_align;
		break;
	case 0x05:
	case 0x06:
	case 0x07:
	case 0x08:
	case 0x09:
	case 0x10:
	case 0x11:
	case 0x14:
	case 0x15:
	case 0x16:
		run_register(program, bytes, op);
		break;
	case 0x0a:
		remember(program, bytes);
		break;
	case 0x0b:
		recall(program, bytes);
		break;
	case 0x2e: /* GNU_args_size */
		read_uleb(bytes);
		break;
	default: /* also set_loc, and 0x2d: signed return addresses */
		run_frame(program, bytes, op);
	}
}

/* Until the row of the wanted place is complete. False: unknown. */
static bool
run(struct program *program, struct bytes bytes)
{
	while (bytes.at < bytes.end && !bytes.bad && program->location <= program->wanted) {
		unsigned byte = (unsigned)read_fixed(&bytes, 1), low = byte & 0x3f;

		switch (byte >> 6) {
		case 1:
			program->location += low * program->code_align;
			break;
		case 2:
			set_place(&program->row, low, ON_STACK,
				  (int64_t)read_uleb(&bytes) * program->data_align);
			break;
		case 3:
			restore(program, low);
			break;
		default:
			run_extended(program, &bytes, byte);
		}
	}
	return !bytes.bad;
}

/* A record of .eh_frame without its length. bad: not in the object, or of a form unknown here. */
static struct bytes
record_at(const struct ca_object *object, uintptr_t address)
{
	struct bytes bytes = { .bad = true };
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
read_augmentation(struct bytes *cie, const char *letters)
{
	unsigned encoding = 0, other;
	uint64_t size;

	if (*letters++ != 'z') {
		cie->bad = true;
		return;
	}
	size = read_uleb(cie);
	if (cie->bad || (uint64_t)(cie->end - cie->at) < size) {
		cie->bad = true;
		return;
	}
	struct bytes data = { .at = cie->at, .end = cie->at + size };

	skip(cie, size);
	for (; *letters && !data.bad; letters++) {
		if (*letters == 'R') {
			encoding = (unsigned)read_fixed(&data, 1);
		} else if (*letters == 'L') {
			read_fixed(&data, 1);
		} else if (*letters == 'P') {
			other = (unsigned)read_fixed(&data, 1);
			skip(&data, (other & 7) == 3 ? 4 : 8); /* 4 bytes, or an address */
		} else {
			data.bad = true;
		}
	}
	cie->bad = data.bad || encoding != PCREL_SDATA4;
}

/* Runs the shared part. */
static bool
run_cie(const struct ca_object *object, uintptr_t address, struct program *program)
{
	struct bytes cie = record_at(object, address);
	const char *letters;
	unsigned version;
	uint64_t reg;

	if (read_fixed(&cie, 4) != 0)
		return false;
	version = (unsigned)read_fixed(&cie, 1);
	letters = (const char *)cie.at;
	while (read_fixed(&cie, 1) && !cie.bad)
		;
	program->code_align = read_uleb(&cie);
	program->data_align = read_sleb(&cie);
	reg = version == 1 ? read_fixed(&cie, 1) : read_uleb(&cie);
	if (cie.bad || (version != 1 && version != 3) || reg != RA)
		return false;
	read_augmentation(&cie, letters);
	program->location = 0;
	if (cie.bad || !run(program, cie))
		return false;
	program->first = program->row;
	return true;
}

static bool
run_fde(const struct ca_object *object, uintptr_t address, struct program *program)
{
	struct bytes fde = record_at(object, address);
	uintptr_t cie = (uintptr_t)fde.at, begin;
	uint64_t size;

	cie -= read_fixed(&fde, 4);
	begin = (uintptr_t)fde.at;
	begin += (uintptr_t)(intptr_t)(int32_t)read_fixed(&fde, 4);
	size = read_fixed(&fde, 4);
	skip(&fde, read_uleb(&fde));
	if (fde.bad || program->wanted - begin >= size || !run_cie(object, cie, program))
		return false;
	program->location = begin;
	return run(program, fde);
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
	if (size < 12 || hdr % 4 || head[0] != HDR_VERSION || head[1] == OMITTED ||
	    head[1] != PCREL_SDATA4 || head[2] != UDATA4 || head[3] != DATAREL_SDATA4)
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
	struct program program = { .wanted = pc, .row.ra = IN_REGISTER };
	const struct row *row = &program.row;
	uintptr_t fde = find_fde(object, pc);

	if (!fde || !run_fde(object, fde, &program) || !row->cfa_known || row->cfa_offset <= 0 ||
	    row->cfa_offset > UINT16_MAX || row->cfa_offset % 8 || row->ra != ON_STACK ||
	    !fits(row->ra_offset) || !fits(row->fp_offset) ||
	    (row->cfa_register != FP && row->cfa_register != SP))
		return false;
	*ret_rule = (struct ca_cfi_rule){
		.from_fp = row->cfa_register == FP,
		.frame = (uint16_t)row->cfa_offset,
		.return_to = (int16_t)row->ra_offset,
		.fp = row->fp == IN_REGISTER ? CA_CFI_FP_SAME
		      : row->fp == ON_STACK  ? CA_CFI_FP_SAVED
					     : CA_CFI_FP_LOST,
		.fp_saved = (int16_t)row->fp_offset,
	};
	return true;
}
