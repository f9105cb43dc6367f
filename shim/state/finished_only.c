/* SPDX-License-Identifier: MIT */
#include "shim/state/finished_only.h"

#include <errno.h>

#include "allocator/order/order.h"

void
ca_fallback(struct ca_process *process, struct ca_space *space, unsigned reason)
{
	int saved = errno;

	if (process->serves) {
		ca_order_finished_only(process->heap, space, reason);
		ca_order_settle_exposed(process->heap, space);
	}
	errno = saved;
}
