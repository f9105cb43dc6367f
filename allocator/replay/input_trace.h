/* SPDX-License-Identifier: MIT */
/*
 * The reader of our own traces (allocator/trace/format.h), for allocator/replay/formats.c.
 *
 * A block's stream is its first user at its free, as far as one is named; else the one that the
 * allocating thread had last submitted to. The moment at which nothing is unfinished any more in a
 * context is a phase of its device. A trace without its end (the process was killed, or has not
 * ended) counts as truncated, as one whose last record is cut.
 */
#pragma once

#include "allocator/replay/input.h"

ca_replay_prober ca_replay_is_trace;
ca_replay_reader ca_replay_read_trace;
