/* SPDX-License-Identifier: MIT */
/* The allocator: bytes decide the settings, the device and each step of a sequence. */
#include "tests/sequence/sequence.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct sequence_options options = { .check_every = 1,
							 .keys = 4,
							 .faults = true };
	struct sequence_totals totals = { 0 };

	sequence_run(source_bytes(data, size), &options, &totals);
	return 0;
}
