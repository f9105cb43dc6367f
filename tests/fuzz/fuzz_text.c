/* SPDX-License-Identifier: MIT */
/* Text formats: by their first line RMM logs and lifetimes, all else as .trc. */
#include "allocator/replay/readers.h"
#include "tests/fuzz/input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	ca_replay_reader *reader = ca_replay_read_trc;

	if (ca_replay_is_rmm(data, size))
		reader = ca_replay_read_rmm;
	else if (ca_replay_is_lifetimes(data, size))
		reader = ca_replay_read_lifetimes;
	ca_replay_is_trc(data, size);
	try_reader(reader, data, size);
	return 0;
}
