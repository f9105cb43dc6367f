/* SPDX-License-Identifier: MIT */
#include "shim/process/watch.h"

#include <stdatomic.h>

#include "allocator/order/order.h"
#include "shim/bind/object.h"
#include "shim/bind/scope.h"
#include "shim/bind/unseen_calls.h"
#include "shim/framework/framework.h"
#include "shim/process/lifecycle.h"
#include "shim/process/registration_listener.h"
#include "shim/state/finished_only.h"

/* A driver function that we do not know is about to be called, or may have been. */
static void
unseen(void)
{
	struct ca_process *process = ca_inside ? NULL : ca_process();

	if (!process)
		return;
	ca_fallback(process, NULL, CA_REASON_UNSEEN_CALL);
	ca_unseen_set_callback(NULL);
}

void
ca_fallback_start(struct ca_process *process)
{
	ca_unseen_set_callback(unseen);
	if (ca_unseen_calls())
		ca_fallback(process, NULL, CA_REASON_UNSEEN_CALL);
	ca_hook_register_start(process);
}

/* The word is another now: true for one of the threads that see it, or a few. (Nothing is written
 * otherwise: all threads look, often.) */
static bool
is_news(_Atomic uint64_t *word, uint64_t now)
{
	return atomic_load_explicit(word, memory_order_acquire) != now &&
	       atomic_exchange_explicit(word, now, memory_order_acq_rel) != now;
}

void
ca_fallback_look_around(struct ca_process *process)
{
	static _Atomic uint64_t looked_at;
	static _Atomic uint64_t counted;
	uint64_t loaded = ca_object_generation();
	CA_KEEP_ERRNO;

	if (is_news(&looked_at, loaded))
		ca_framework_look_again();
	ca_hook_register_look(process, loaded);
	if (is_news(&counted, ca_unseen_calls()))
		ca_fallback(process, NULL, CA_REASON_UNSEEN_CALL);
}
