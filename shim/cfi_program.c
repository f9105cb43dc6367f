/* SPDX-License-Identifier: MIT */
#include "shim/cfi_program.h"

#include <stddef.h>
#include <string.h>

uint64_t
ca_cfi_fixed(struct ca_cfi_bytes *bytes, unsigned size)
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
leb(struct ca_cfi_bytes *bytes, bool is_signed)
{
	uint64_t value = 0, byte;
	unsigned shift = 0;

	do {
		byte = ca_cfi_fixed(bytes, 1);
		if (shift < 64)
			value |= (byte & 0x7f) << shift;
		shift += 7;
	} while (byte & 0x80);
	if (is_signed && shift < 64 && (byte & 0x40))
		value |= ~(uint64_t)0 << shift;
	return value;
}

uint64_t
ca_cfi_uleb(struct ca_cfi_bytes *bytes)
{
	return leb(bytes, false);
}

int64_t
ca_cfi_sleb(struct ca_cfi_bytes *bytes)
{
	return (int64_t)leb(bytes, true);
}

void
ca_cfi_skip(struct ca_cfi_bytes *bytes, uint64_t size)
{
	if (bytes->bad || (uint64_t)(bytes->end - bytes->at) < size)
		bytes->bad = true;
	else
		bytes->at += size;
}

/* Without overflow: the numbers may be anything. */
static int64_t
scaled(const struct ca_cfi_program *program, int64_t factor)
{
	return (int64_t)((uint64_t)factor * (uint64_t)program->data_align);
}

static void
set_place(struct ca_cfi_row *row, uint64_t reg, enum ca_cfi_place place, int64_t offset)
{
	if (reg == CA_CFI_FP) {
		row->fp = place;
		row->fp_offset = offset;
	} else if (reg == CA_CFI_RA) {
		row->ra = place;
		row->ra_offset = offset;
	}
}

static void
restore(struct ca_cfi_program *program, uint64_t reg)
{
	const struct ca_cfi_row *first = &program->first;

	if (reg == CA_CFI_FP)
		set_place(&program->row, reg, first->fp, first->fp_offset);
	else if (reg == CA_CFI_RA)
		set_place(&program->row, reg, first->ra, first->ra_offset);
}

static void
define_frame(struct ca_cfi_row *row, uint64_t reg, int64_t offset)
{
	row->cfa_register = (unsigned)reg;
	row->cfa_offset = offset;
	row->cfa_known = true;
}

static void
remember(struct ca_cfi_program *program, struct ca_cfi_bytes *bytes)
{
	if (program->n_remembered == CA_CFI_REMEMBERED_MAX)
		bytes->bad = true;
	else
		program->remembered[program->n_remembered++] = program->row;
}

static void
recall(struct ca_cfi_program *program, struct ca_cfi_bytes *bytes)
{
	if (!program->n_remembered)
		bytes->bad = true;
	else
		program->row = program->remembered[--program->n_remembered];
}

/* The instructions that say where the frame is. */
static void
run_frame(struct ca_cfi_program *program, struct ca_cfi_bytes *bytes, unsigned op)
{
	struct ca_cfi_row *row = &program->row;
	uint64_t reg;

	switch (op) {
	case 0x0c: /* def_cfa */
		reg = ca_cfi_uleb(bytes);
		define_frame(row, reg, (int64_t)ca_cfi_uleb(bytes));
		break;
	case 0x12: /* def_cfa_sf */
		reg = ca_cfi_uleb(bytes);
		define_frame(row, reg, scaled(program, ca_cfi_sleb(bytes)));
		break;
	case 0x0d: /* def_cfa_register */
		row->cfa_register = (unsigned)ca_cfi_uleb(bytes);
		break;
	case 0x0e: /* def_cfa_offset */
		row->cfa_offset = (int64_t)ca_cfi_uleb(bytes);
		break;
	case 0x13: /* def_cfa_offset_sf */
		row->cfa_offset = scaled(program, ca_cfi_sleb(bytes));
		break;
	case 0x0f: /* def_cfa_expression */
		ca_cfi_skip(bytes, ca_cfi_uleb(bytes));
		row->cfa_known = false;
		break;
	default:
		bytes->bad = true;
	}
}

/* The instructions that say where a register is. */
static void
run_register(struct ca_cfi_program *program, struct ca_cfi_bytes *bytes, unsigned op)
{
	struct ca_cfi_row *row = &program->row;
	uint64_t reg = ca_cfi_uleb(bytes);

	switch (op) {
	case 0x05: /* offset_extended */
		set_place(row, reg, CA_CFI_ON_STACK, scaled(program, (int64_t)ca_cfi_uleb(bytes)));
		break;
	case 0x11: /* offset_extended_sf */
		set_place(row, reg, CA_CFI_ON_STACK, scaled(program, ca_cfi_sleb(bytes)));
		break;
	case 0x06: /* restore_extended */
		restore(program, reg);
		break;
	case 0x07: /* undefined */
		set_place(row, reg, CA_CFI_UNKNOWN, 0);
		break;
	case 0x08: /* same_value */
		set_place(row, reg, CA_CFI_IN_REGISTER, 0);
		break;
	case 0x09: /* register */
	case 0x14: /* val_offset */
		ca_cfi_uleb(bytes);
		set_place(row, reg, CA_CFI_UNKNOWN, 0);
		break;
	case 0x15: /* val_offset_sf */
		ca_cfi_sleb(bytes);
		set_place(row, reg, CA_CFI_UNKNOWN, 0);
		break;
	default: /* 0x10 expression, 0x16 val_expression */
		ca_cfi_skip(bytes, ca_cfi_uleb(bytes));
		set_place(row, reg, CA_CFI_UNKNOWN, 0);
	}
}

static void
run_extended(struct ca_cfi_program *program, struct ca_cfi_bytes *bytes, unsigned op)
{
	switch (op) {
	case 0x00: /* nop */
		break;
	case 0x02: /* advance_loc1, 2, 4 */
	case 0x03:
	case 0x04:
		program->location += ca_cfi_fixed(bytes, 1u << (op - 2)) * program->code_align;
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
		ca_cfi_uleb(bytes);
		break;
	default: /* also set_loc, and 0x2d: signed return addresses */
		run_frame(program, bytes, op);
	}
}

bool
ca_cfi_run(struct ca_cfi_program *program, struct ca_cfi_bytes bytes)
{
	while (bytes.at < bytes.end && !bytes.bad && program->location <= program->wanted) {
		unsigned byte = (unsigned)ca_cfi_fixed(&bytes, 1), low = byte & 0x3f;

		switch (byte >> 6) {
		case 1:
			program->location += low * program->code_align;
			break;
		case 2:
			set_place(&program->row, low, CA_CFI_ON_STACK,
				  scaled(program, (int64_t)ca_cfi_uleb(&bytes)));
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
