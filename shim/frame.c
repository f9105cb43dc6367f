/* SPDX-License-Identifier: MIT */
/*
 * An entry of the table is two words, written and read without a lock: the rule, and the place
 * mixed with rule and generation. Words of two writers do not match each other, and are no entry.
 */
#include "shim/frame.h"

#include <stdatomic.h>

#include "shim/cfi.h"
#include "shim/object.h"

enum { KEPT = 64 };

static struct {
	_Atomic uint64_t check, rule;
} kept[KEPT];

static uint64_t
mix(uintptr_t pc, uint64_t rule, uint64_t generation)
{
	return (pc ^ rule * 0x9e3779b97f4a7c15u) + (generation + 1) * 0xd1342543de82ef95u;
}

/* 0: unknown. */
static uint64_t
pack(const struct ca_cfi_rule *rule)
{
	return (uint64_t)rule->frame | (uint64_t)(uint16_t)rule->return_to << 16 |
	       (uint64_t)(uint16_t)rule->fp_saved << 32 | (uint64_t)rule->fp << 48 |
	       (uint64_t)rule->from_fp << 50;
}

static struct ca_cfi_rule
unpack(uint64_t packed)
{
	return (struct ca_cfi_rule){
		.frame = (uint16_t)packed,
		.return_to = (int16_t)(packed >> 16),
		.fp_saved = (int16_t)(packed >> 32),
		.fp = (enum ca_cfi_fp)(packed >> 48 & 3),
		.from_fp = packed >> 50 & 1,
	};
}

struct search {
	uintptr_t pc;
	uint64_t packed;
};

static bool
visit(const struct ca_object *object, void *arg)
{
	struct search *search = arg;
	struct ca_cfi_rule rule;

	if (!ca_object_holds(object, search->pc))
		return false;
	/* a return address may lie behind the last instruction of its function */
	if (ca_cfi_find(object, search->pc - 1, &rule))
		search->packed = pack(&rule);
	return true;
}

static uint64_t
rule_of(uintptr_t pc, uint64_t generation)
{
	unsigned i = (unsigned)((pc * 0x9e3779b97f4a7c15u) >> 58);
	uint64_t check = atomic_load_explicit(&kept[i].check, memory_order_relaxed);
	uint64_t packed = atomic_load_explicit(&kept[i].rule, memory_order_relaxed);
	struct search search = { .pc = pc };

	if (check == mix(pc, packed, generation))
		return packed;
	ca_object_walk(visit, &search);
	atomic_store_explicit(&kept[i].rule, search.packed, memory_order_relaxed);
	atomic_store_explicit(&kept[i].check, mix(pc, search.packed, generation),
			      memory_order_relaxed);
	return search.packed;
}

/* A word between the two, where a frame keeps what it has to restore. */
static bool
lies_between(uintptr_t low, uintptr_t high, int16_t offset)
{
	return offset < 0 && high - low >= (uintptr_t)-offset && offset % 8 == 0;
}

bool
ca_frame_up(struct ca_frame *frame, uint64_t generation)
{
	struct ca_cfi_rule rule = unpack(rule_of(frame->pc, generation));
	uintptr_t from = rule.from_fp ? frame->fp : frame->sp, sp = from + rule.frame;

	/* the stack grows down, and a frame's bottom is not above its frame pointer */
	if (!rule.frame || from < frame->sp || from - frame->sp > UINT16_MAX || sp % 8 ||
	    !lies_between(frame->sp, sp, rule.return_to) ||
	    (rule.fp == CA_CFI_FP_SAVED && !lies_between(frame->sp, sp, rule.fp_saved)))
		return false;
	frame->kept = (const uintptr_t *)(sp + (uintptr_t)(intptr_t)rule.return_to);
	frame->pc = *frame->kept;
	if (rule.fp == CA_CFI_FP_SAVED)
		frame->fp = *(const uintptr_t *)(sp + (uintptr_t)(intptr_t)rule.fp_saved);
	else if (rule.fp == CA_CFI_FP_LOST)
		frame->fp = 0;
	frame->sp = sp;
	return true;
}
