/* SPDX-License-Identifier: MIT */
#include "shim/state/finished_only.h"

#include "allocator/order/order.h"
#include "shim/bind/scope.h"

void
ca_fallback(struct ca_process *process, struct ca_space *space, unsigned reason)
{
	CA_KEEP_ERRNO;

	if (process->caches) {
		ca_order_finished_only(process->heap, space, reason);
		ca_order_settle_exposed(process->heap, space);
	}
}
