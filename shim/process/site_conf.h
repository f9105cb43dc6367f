/* SPDX-License-Identifier: MIT */
/*
 * The file of a site's settings (config/site.h) in this process: read at the first hooked call,
 * once for the process and the children that it forks from then on. Not in a set-uid program, where
 * the environment is not read either, nor under CACHEALLOC_DISABLE=1.
 *
 * errno kept; no malloc.
 */
#pragma once

#include <stdbool.h>

#include "config/site.h"

/* Where it would be; empty: this library was built without. */
extern const char ca_site_path[] __attribute__((visibility("hidden")));

/* By the maker of the process's record alone, before all below. */
void ca_site_conf_read(void);
/* Says what is wrong with it, unless that was said. */
void ca_site_conf_report(ca_report_fn *report, void *report_arg);
/* The settings; NULL: no file is in effect. */
const struct ca_site *ca_site_conf(void);
/* Its path; NULL: no file is in effect. */
const char *ca_site_conf_path(void);

/* Reads the file anew: a line for its state, then one for each bad setting, through `report`. */
void ca_site_conf_describe(ca_report_fn *report, void *report_arg);
