/* SPDX-License-Identifier: MIT */
#include "shim/dump.h"

void
ca_dump_start(const struct ca_config *config)
{
}
void
ca_dump_note_device(CUdevice device)
{
}
void
ca_dump_if_due(struct ca_heap *heap)
{
}
void
ca_dump_final(struct ca_heap *heap)
{
}
void
ca_dump_after_fork_child(void)
{
}
