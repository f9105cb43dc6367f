/* SPDX-License-Identifier: MIT */
/* Memory mapped into reserved addresses: the range_* of allocator/core/driver.h. */
#pragma once

#include <stdint.h>

int ca_vmm_reserve(void *self, void *space_context, uint64_t *ret_address, uint64_t *ret_bytes);
int ca_vmm_map(void *self, void *space_context, uint64_t address, uint64_t bytes);
int ca_vmm_alias(void *self, void *space_context, uint64_t from, uint64_t to, uint64_t bytes);
int ca_vmm_unmap(void *self, void *space_context, uint64_t address, uint64_t bytes);
void ca_vmm_release(void *self, void *space_context, uint64_t address, uint64_t bytes);

/* The program wanted to export mapped memory, which cannot be: nothing more is mapped in this
 * process. Any thread. */
void ca_vmm_stop(void);
