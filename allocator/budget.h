/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct ca_block;
struct ca_space;

enum { CA_GIVEN_MAX = 64 };

struct ca_budget {
	uint64_t given[CA_GIVEN_MAX];
	unsigned given_next;
	uint64_t regret_bytes;
	uint64_t tokens, tokens_at;
	unsigned in_vain, not_now;
	bool refused, last;
	uint64_t refused_at;
	uint64_t total;
};

void ca_budget_make_locked(struct ca_space *space, uint64_t segment_bytes, uint64_t bytes);
struct ca_block *ca_budget_choose_locked(struct ca_space *space, struct ca_block *block, uint64_t bytes);
uint64_t ca_budget_segment_bytes(struct ca_space *space, uint64_t segment_bytes, uint64_t bytes);
void ca_budget_refused_locked(struct ca_space *space, uint64_t bytes);
void ca_budget_taken_locked(struct ca_space *space, uint64_t bytes);
