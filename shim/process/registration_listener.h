/* SPDX-License-Identifier: MIT */
/*
 * Memory that is registered with network and storage libraries (shim/bind/registrations.def).
 */
#pragma once

#include "shim/state/process.h"

/* Calls of registration functions are seen from now on. */
void ca_hook_register_start(struct ca_process *process);
/* Follows direct links in what was loaded since the last time; `generation` is that of now
 * (shim/bind/object.h). `process` may be NULL. */
void ca_hook_register_look(struct ca_process *process, uint64_t generation);
/* Until the child has a process of its own, nobody listens. */
void ca_hook_register_after_fork_child(void);
