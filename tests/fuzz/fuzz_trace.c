/* SPDX-License-Identifier: MIT */
/* Our own traces. */
#include "allocator/replay/input_trace.h"
#include "tests/fuzz/input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	ca_replay_is_trace(data, size);
	try_reader(ca_replay_read_trace, data, size);
	return 0;
}
