/* SPDX-License-Identifier: MIT */
/* A configuration is a valid one, whatever it was read from. */
#pragma once

#include <string.h>

#include "config/config.h"
#include "tests/fuzz/input.h"

/* Every number is one that the setting's own parser would have accepted. */
static inline void
check_valid(const struct ca_config *config)
{
	const uint64_t most = (uint64_t)1 << 60;

	require(config->large_segment_size_bytes > (uint64_t)10 << 20);
	require(config->max_split_size_bytes >= config->large_segment_size_bytes);
	require(config->max_non_split_rounding_bytes >= config->large_segment_size_bytes);
	require(config->min_size_bytes <= most);
	require(config->max_size_bytes <= most || config->max_size_bytes == UINT64_MAX);
	require(config->gc_threshold < CA_WHOLE && config->memory_fraction <= CA_WHOLE);
	require(!(config->limit.bytes && config->limit.share) && config->limit.share <= CA_WHOLE);
	require(!(config->forced_limit.bytes && config->forced_limit.share));
	require(config->forced_limit.share <= CA_WHOLE);
	require(config->roundup.count <= CA_INTERVALS_MAX);
	for (unsigned i = 0; i < config->roundup.count; i++) {
		uint64_t divisions = config->roundup.interval[i].divisions;

		require(!(divisions & (divisions - 1)));
		require(!i ||
			config->roundup.interval[i - 1].below < config->roundup.interval[i].below);
	}
	require(config->async <= CA_ASYNC_KEEP && config->take_over < 2 * CA_TAKE_CUDF);
	require(config->expandable_segments <= CA_EXPANDABLE_AUTO);
	require(config->under_framework <= CA_UNDER_CACHE && config->disable <= CA_DISABLE_COUNT);
	require(config->log_level <= CA_LOG_DEBUG);
	require(memchr(config->log_file, 0, CA_PATH_MAX) &&
		memchr(config->stats_file, 0, CA_PATH_MAX) &&
		memchr(config->trace_file, 0, CA_PATH_MAX));
}
