/* SPDX-License-Identifier: MIT */
/*
 * The handle of a stream goes to the driver only between pin and unpin; closing the stream waits
 * for that (stream.c).
 */
#include "allocator/order/internal.h"

bool
ca_record_is_nameable_ordered(struct ca_stream_record *record)
{
	if (ca_record_order(record)->dead || atomic_load(&record->closed))
		return false;
	return record->kind != CA_STREAM_PER_THREAD || record->thread == ca_order_thread() ||
	       CA_MUTANT(PER_THREAD_MARK);
}

bool
ca_record_pin_ordered(struct ca_stream_record *record, void **ret_handle)
{
	if (!ca_record_is_nameable_ordered(record))
		return false;
	record->calls++;
	*ret_handle = record->handle;
	return true;
}

bool
ca_record_pin(struct ca_stream_record *record, void **ret_handle)
{
	struct ca_order *order = ca_record_order(record);
	bool pinned;

	ca_order_lock(order);
	pinned = ca_record_pin_ordered(record, ret_handle);
	ca_order_unlock(order);
	return pinned;
}

void
ca_record_unpin(struct ca_stream_record *record)
{
	struct ca_order *order = ca_record_order(record);

	ca_order_lock(order);
	record->calls--;
	ca_order_unlock(order);
}
