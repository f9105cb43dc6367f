/* SPDX-License-Identifier: MIT */
/*
 * Order marks of the real driver (contract: allocator/driver.h), made of events recorded on
 * contexts.
 *
 * A mark is a chain of parts, one event for each context alive when it was recorded, because work
 * submitted in any of them may touch the memory (copies between contexts, peer access). It is done
 * when all its parts are; a part whose context died is done, since a destroyed context runs
 * nothing.
 */
#pragma once

#include "allocator/driver.h"

struct ca_context;

int ca_mark_record(void *self, void *space_context, ca_mark *ret_mark);
int ca_mark_query(void *self, ca_mark mark);
int ca_mark_wait(void *self, ca_mark mark);
void ca_mark_drop(void *self, ca_mark mark);

/* The context's events died with it: its spare parts become blank. */
void ca_marks_context_died(struct ca_context *context);
/* In a forked child: locks are remade, parts forgotten. */
void ca_marks_after_fork_child(void);
