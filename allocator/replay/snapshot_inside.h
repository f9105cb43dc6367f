/* SPDX-License-Identifier: MIT */
/* Between snapshot.c and snapshot_trace.c. */
#pragma once

#include "allocator/replay/snapshot.h"

/* The trace that a list of texts has in base64. 0, -EINVAL, -ENOMEM; places are in the trace. */
int ca_snapshot_read_trace(const struct ca_snapshot_source *source,
			   const struct ca_snapshot_value *list, struct ca_replay_input *input,
			   struct ca_replay_error *error);
