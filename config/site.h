/* SPDX-License-Identifier: MIT */
/*
 * A site's file, such as /etc/cachealloc.conf: settings of the administrator's, below those of the
 * environment, and a limit that the environment cannot raise.
 *
 *   # a comment
 *   CACHEALLOC_CONF=reuse_slack_mb:128
 *   CACHEALLOC_STATS=/var/log/cachealloc/%e.%p.json
 *   force CACHEALLOC_LIMIT=90%
 *
 * A line has one variable, in the form in which the environment has it, and no quotes. Not here:
 * CACHEALLOC_STRICT, since a file must not end a program, and CACHEALLOC_TAKEOVER, which is due
 * before the file is read. A bad line, or key of CACHEALLOC_CONF, is one report and is ignored.
 *
 * It is no security boundary: who starts a program decides whether the library is in it at all.
 *
 * No malloc, no cancellation point, errno kept.
 */
#pragma once

#include <stddef.h>

#include "config/config.h"

enum {
	CA_SITE_BYTES_MAX = 65536, /* of the file */
	CA_SITE_PATH_MAX = 256,    /* of its path in a line */
};

struct ca_site {
	struct ca_config config; /* defaults, and what the file sets */
	uint64_t set;            /* a bit per row of options.def */
};

/*
 * Reads the file into `text`, which has `size` bytes. 0: all of it, *ret_length bytes, is there;
 * otherwise -errno, -EPERM where it is not to be used, and *ret_reason says why, to be read after
 * "is ignored: ". Only a regular file of at most `size` bytes counts that root owns and nobody else
 * may write; no link is followed at the path's end. The folders above are not looked at: who may
 * change them can put another file of root's there, no other. -ENOENT: there is none, and
 * *ret_reason is NULL.
 */
int ca_site_read(const char *path, char *text, size_t size, size_t *ret_length,
		 const char **ret_reason);

/*
 * Fills *ret_site from `length` bytes of text, which may have any byte, and one more behind them;
 * afterwards they are as they were. `path` is for reports only:
 * "PATH:LINE: ...", one for each bad setting, as ca_config_load makes them. Returns their number.
 */
int ca_site_parse(struct ca_site *ret_site, const char *path, char *text, size_t length,
		  ca_report_fn *report, void *report_arg);

/*
 * ca_config_load on top of the site's settings (NULL: defaults). Where values of the two do not go
 * together, as a max_split_size_mb below large_segment_size_mb, the site's are dropped, which is
 * reported but does not count as bad.
 */
int ca_config_load_over(const struct ca_site *site, struct ca_config *ret_config, ca_getenv_fn *env,
			void *env_arg, char *const *environ_names, ca_report_fn *report,
			void *report_arg);
