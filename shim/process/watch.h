/* SPDX-License-Identifier: MIT */
/*
 * Watches for work that we cannot see or order: calls of unknown driver functions, memory
 * registered with other libraries, and libraries that were loaded late. Found work restricts reuse
 * (shim/state/finished_only.h).
 */
#pragma once

#include "shim/state/process.h"

/* The process record was made. */
void ca_fallback_start(struct ca_process *process);
