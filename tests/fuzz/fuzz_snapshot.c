/* SPDX-License-Identifier: MIT */
/* PyTorch snapshots: bytes that begin as a pickle go to its reader, all others to that of JSON. */
#include "allocator/replay/readers.h"
#include "tests/fuzz/input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	bool pickle = ca_replay_is_pickle(data, size);

	try_reader(pickle ? ca_replay_read_pickle : ca_replay_read_json, data, size);
	return 0;
}
