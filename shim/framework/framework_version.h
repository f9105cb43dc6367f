/* SPDX-License-Identifier: MIT */
/*
 * The version of a loaded framework, as the file version.py beside its library has it: wheels of
 * JAX put one there. Reading it takes the loader's lock for the list and one small file; it is
 * asked for only where a setting means something else in another version.
 */
#pragma once

#include <stdbool.h>

#include "shim/framework/framework_list.h"

/* True if the version is known and is before `limit`, "MAJOR.MINOR". errno kept; no malloc. */
bool ca_framework_is_before(enum ca_framework framework, const char *limit);
