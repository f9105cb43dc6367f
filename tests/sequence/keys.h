/* SPDX-License-Identifier: MIT */
/*
 * A random configuration: every setting of config/options.def that is built, as a user would write
 * it. A setting has a generator of values that matter at the sizes of a sequence, or is named as
 * one that the allocator does not read; one that has neither is an error, so that none is
 * forgotten.
 */
#pragma once

#include "config/config.h"
#include "tests/sequence/source.h"

/* The first built setting without a generator; NULL: there is none. */
const char *sequence_keys_missing(void);
/* Of each setting that can be set, a value other than the default has a chance of `chance` in 16.
 * The text of CACHEALLOC_CONF is put into ret_text. */
enum { SEQUENCE_CONF_BYTES = 2048 };
void sequence_keys(struct source *source, unsigned chance, struct ca_config *ret_config,
		   char ret_text[SEQUENCE_CONF_BYTES]);
