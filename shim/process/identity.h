/* SPDX-License-Identifier: MIT */
/* Names this process in its statistics. No malloc, errno kept. */
#pragma once

#include "allocator/api/stats_text.h"

enum { CA_IDENTITY_WORD = 64, CA_IDENTITY_TEXT = 1024 };

struct ca_identity {
	struct ca_emit_identity emitted; /* points into the rest */
	char host[CA_IDENTITY_WORD], program[CA_IDENTITY_WORD], rank[CA_IDENTITY_WORD];
	char command[CA_IDENTITY_TEXT], conf[CA_IDENTITY_TEXT];
};

/* As it is now, without a number. `elapsed_ns` is given. */
void ca_identity_read(struct ca_identity *ret_identity, uint64_t elapsed_ns);
/* Each call takes the next. */
void ca_identity_number(struct ca_identity *identity);
void ca_identity_after_fork_child(void);
