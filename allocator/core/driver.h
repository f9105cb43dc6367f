/* SPDX-License-Identifier: MIT */
/*
 * struct ca_driver: the allocator's whole outside world.
 *
 * Behind it stand the real CUDA driver (shim/), pretend memory (allocator/fake/fake.h: replay and
 * unit tests) and fault injection (tests). Each function may be called by several threads at once.
 * Only `capturing`, `capture_allows`, `orders` and `clock_ns` are called with a lock of the
 * allocator held; they call nobody back.
 *
 * Results: 0 done; > 0 the driver's own code, to be handed to the program unchanged; < 0 our
 * -errno. Outputs (`ret_*`) are written only on success.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/*
 * An order mark: a point in the work submitted to the device(s). It is done when everything
 * submitted before it was recorded, in every context of the process that could touch the memory,
 * has finished. The value belongs to the driver; CA_MARK_NONE is never returned by mark_record.
 */
typedef uint64_t ca_mark;
#define CA_MARK_NONE ((ca_mark)0)

enum {
	/* The one driver code the allocator must know (CUDA_ERROR_OUT_OF_MEMORY; cuda.h). */
	CA_DRIVER_OUT_OF_MEMORY = 2,
};

struct ca_driver {
	void *self; /* first argument of every function */

	/*
	 * A segment of exactly `size` bytes (> 0) in the context `context`. *ret_address is
	 * 512-byte aligned at least, and 2 MiB aligned where the driver does so.
	 * CA_DRIVER_OUT_OF_MEMORY when there is none.
	 */
	int (*segment_take)(void *self, void *context, uint64_t size, uint64_t *ret_address);
	/* The same in managed memory, which segment_return gives back, too. */
	int (*managed_take)(void *self, void *context, uint64_t size, uint64_t *ret_address);
	/* Gives a segment back. May wait for the device (counted by the allocator as a host sync).
	 * -EBUSY: a stream capture is in the way, nothing was done. */
	int (*segment_return)(void *self, void *context, uint64_t address);

	/*
	 * Memory that is mapped into reserved addresses. range_reserve NULL: there is none, nor are
	 * the four behind it. None of them waits for work: all work on memory has
	 * finished before it is unmapped. *ret_address is 2 MiB aligned; *ret_bytes, a multiple of
	 * 2 MiB, is more than the memory of the context's device. -ENOTSUP: there is none for this
	 * context, now and for ever; > 0: the driver's error.
	 */
	int (*range_reserve)(void *self, void *context, uint64_t *ret_address, uint64_t *ret_bytes);
	/* New memory at a reserved address, of which nothing is mapped: one handle of `bytes`, a
	 * multiple of 2 MiB. CA_DRIVER_OUT_OF_MEMORY when there is none, > 0: another error of the
	 * driver; where it fails nothing is mapped. -ENOTSUP: such memory is of no use any more in
	 * this context. */
	int (*range_map)(void *self, void *context, uint64_t address, uint64_t bytes);
	/* Maps at `to`, where nothing is, too, just what one range_map or range_alias has mapped at
	 * `from`: the same memory at two addresses. A write at one is seen at the other
	 * by work that begins when the writing work has ended. Where it fails nothing is mapped.
	 * -EBUSY: a stream capture is in the way; -ENOTSUP: there is no such thing in this context.
	 */
	int (*range_alias)(void *self, void *context, uint64_t from, uint64_t to, uint64_t bytes);
	/* Unmaps just what one range_map or range_alias has mapped; the memory goes back when it is
	 * mapped nowhere. -EBUSY: a stream capture is in the way, nothing was done; not after the
	 * end of the context. */
	int (*range_unmap)(void *self, void *context, uint64_t address, uint64_t bytes);
	/* Gives the addresses back, of which nothing is mapped. Cannot fail. */
	void (*range_release)(void *self, void *context, uint64_t address, uint64_t bytes);

	/*
	 * Records a mark behind everything submitted so far. -ENOTSUP: this driver has no such
	 * marks, now and for ever; -EBUSY: a stream capture is in progress, nothing was done;
	 * -ENODATA: the same, since it is not known (yet) that such a mark covers all; -EIO:
	 * another context than `context` answers with an error, so that what it still runs cannot
	 * be known.
	 */
	int (*mark_record)(void *self, void *context, ca_mark *ret_mark);
	/* 0: done; -EAGAIN: not yet; -EBUSY: a capture is in progress, not known (of a stream's
	 * mark it is known all the same); -EIO as above; > 0: the driver's error. */
	int (*mark_query)(void *self, ca_mark mark);
	/* The same of the mark's part in its own context only. */
	int (*mark_query_own)(void *self, ca_mark mark);
	/*
	 * Waits on the host for the mark's part in its own context, as the driver's own free would
	 * have. 0: the mark is done; -EAGAIN: the rest is work of other contexts, for which waiting
	 * might be for ever; -EBUSY, -EIO as above.
	 */
	int (*mark_wait)(void *self, ca_mark mark);
	/*
	 * Records a mark on one stream (as given to ca_stream_open) of the space's `context`: done
	 * when all that was submitted to that stream before has finished. On a legacy stream it
	 * must not act as a barrier. -EBUSY: a capture is in the way (not that of another stream,
	 * mostly), nothing was done; -ENOTSUP: this thread cannot name the stream; > 0: the
	 * driver's error.
	 * mark_query and mark_wait answer for such a mark without regard to other contexts.
	 */
	int (*stream_mark)(void *self, void *context, void *stream, ca_mark *ret_mark);
	/* Later work of the stream runs after the mark (which is a stream's). Results as above. */
	int (*stream_wait)(void *self, void *context, void *stream, ca_mark mark);
	/* Puts an operation into the stream that does nothing, but is ordered with those of other
	 * streams as work is. Results as above. NULL: calls that a cache serves need none. */
	int (*stream_operation)(void *self, void *context, void *stream);
	/* 0: all that was submitted to the stream has finished; -EAGAIN: not yet; -EBUSY: a capture
	 * is in progress; -ENOTSUP, > 0 as above. */
	int (*stream_query)(void *self, void *context, void *stream);
	/* Waits on the host for one stream; 0, -EBUSY, -ENOTSUP, or the driver's error. */
	int (*stream_synchronize)(void *self, void *context, void *stream);
	/* The allocator has no more use for the mark.
	 * Called once per recorded mark; cannot fail. */
	void (*mark_drop)(void *self, ca_mark mark);
	/* Waits on the host for everything submitted so far, in every context, for drivers without
	 * marks. -EBUSY, -EIO as above. */
	int (*synchronize)(void *self, void *context);
	/* The same for one context, not for the others. -EBUSY, or the driver's error. */
	int (*context_synchronize)(void *self, void *context);

	/* Bytes of the context's device that the driver has left, and all of them. 0, or the
	 * driver's code. */
	int (*memory_info)(void *self, void *context, uint64_t *ret_free, uint64_t *ret_total);
	/*
	 * Memory that the driver keeps for nobody goes back to the system: that of the pools whose
	 * keeper this process made itself, down to `keep_bytes` each, and if `graphs`, that of
	 * graphs. Waits for nothing. Returns the bytes that went back. NULL: there is none.
	 */
	uint64_t (*pools_trim)(void *self, unsigned device, uint64_t keep_bytes, bool graphs);
	/* True while any stream of the process captures, or is about to: the allocator then hands
	 * out whole segments only. Cheap, and may be called with a lock held. */
	bool (*capturing)(void *self);
	/* True if no capture prohibits an allocation of the driver's to the calling thread. NULL:
	 * only the driver itself can tell. Cheap, and may be called with a lock held. */
	bool (*capture_allows)(void *self);
	/* True if the driver is known to keep the order between streams of the context that reuse
	 * before the end of work rests on. NULL: it is. Cheap, and may be called with a lock held.
	 */
	bool (*orders)(void *self, void *context);
	/* False if mark_record would answer -ENOTSUP or -ENODATA now. NULL: it does not. Cheap. */
	bool (*has_marks)(void *self);
	/* The host does nothing for `ns` nanoseconds. NULL: the calling thread sleeps. */
	void (*pause)(void *self, uint64_t ns);
	/* Monotonic, in nanoseconds. Never fails. */
	uint64_t (*clock_ns)(void *self);
	bool real_time; /* it is the machine's clock: the processor's counter tells time, too */
	bool no_time;   /* its clock does not tell how long the program runs between calls */
};
