/* SPDX-License-Identifier: MIT */
/*
 * The cost of mapping, until it is measured, as others found it (80 to 84 us to map 2 MiB
 * handles into a new place on an A100, the cost being of handles and not of bytes).
 */
#pragma once

enum {
	CA_RANGE_MAP_US = 80,   /* a handle: created or moved, mapped, access granted */
	CA_RANGE_UNMAP_US = 40, /* a handle */
};
