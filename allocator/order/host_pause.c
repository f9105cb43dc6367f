/* SPDX-License-Identifier: MIT */
/*
 * A lull: the host submits nothing for a while.
 *
 * In a quiet space nothing is recorded. If a second stream comes, its work is ordered behind what
 * was handed out unfinished before, by a mark recorded only then (single_stream.c): that mark comes
 * behind everything the first stream was given meanwhile, and if this is a kernel that waits for
 * the second stream, both wait for ever. A program that launches such a kernel has mostly set
 * things up, and then waited for something. So from a hand-out on the stream is *watched*: each
 * submission notes the time, and the first one behind a lull records a mark before itself. A guard
 * waits for the first mark that covers what was handed out, which this one is then, and for nothing
 * later.
 *
 * The mark finishes nothing: older work counts as unfinished until the mark is seen to be done. A
 * program that has lulls for ever and asks for nothing has its marks asked here, so that there are
 * only as many as the device is lulls behind. Where no mark can be had (a capture, an error) all is
 * as it would be without a lull, and the next one is another try.
 *
 * Several threads: the watch ends only once the mark is published, so a thread that submits behind
 * the same lull meanwhile records one, too. A hand-out in between is looked for afterwards.
 */
#include "allocator/order/internal.h"

#include <errno.h>

/*
 * A few ms: 2^23 ticks are 2.3 ms at 3.7 GHz and 4.2 ms at 2 GHz, between which most counters of
 * servers are, and less than 10 ms from 0.84 GHz on: no need to learn how long a tick is. A busy
 * program submits every 10 to 100 us. But a busy machine takes the processor away for 1 to 4 ms,
 * which cannot be told from a pause: a thousand launches on two processors for six programs got 0
 * to 3 marks with 2^22 ticks, and with 2^23 mostly none (41 of 48 runs).
 */
enum { X86_TICKS = 1 << 23, A_SECOND = 256 };

uint64_t
ca_host_pause_ticks(const struct ca_driver *driver)
{
	uint64_t ticks = X86_TICKS;

#if defined(__aarch64__)
	__asm__("mrs %0, cntfrq_el0" : "=r"(ticks));
	ticks /= A_SECOND;
#endif
	return driver->real_time && !CA_MUTANT(PAUSE_UNSEEN) ? ticks : 0;
}

void
ca_host_pause_track(struct ca_stream *stream)
{
	if (!stream->words->lull)
		return;
	ca_host_pause_put_off(stream, ca_ticks());
	atomic_fetch_or(&stream->seen, CA_WATCHED);
}

/* Marks of earlier lulls. An error is no news here. */
static void
query_older(struct ca_stream_record *record)
{
	const struct ca_driver *driver = &record->space->heap->driver;
	struct ca_stream_mark *point;
	int r = 0;

	while (!r && (point = ca_stream_mark_get(record, atomic_load(&record->done) + 1))) {
		r = driver->mark_query(driver->self, point->mark);
		if (!r)
			ca_order_finished(&record->stream, point->bound);
		ca_stream_mark_put(record, point);
	}
}

void
ca_host_pause_look(struct ca_stream_record *record)
{
	struct ca_stream *stream = &record->stream;
	int saved = errno;

	if (ca_host_pause_is_none(stream))
		return;
	query_older(record);
	if (CA_MUTANT(OLDER_FORGOTTEN))
		ca_order_finished(stream, ca_order_bound(stream));
	if (ca_record_is_unmarked(record) && ca_stream_mark_try(record)) {
		ca_host_pause_put_off(stream, ca_ticks());
	} else {
		atomic_fetch_and(&stream->seen, ~CA_WATCHED);
		if (ca_record_is_unmarked(record))
			ca_host_pause_track(stream);
	}
	errno = saved;
}
