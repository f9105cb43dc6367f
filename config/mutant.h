/* SPDX-License-Identifier: MIT */
/*
 * Mutants: deliberate mistakes in the code, which the tests must find, or the tests prove nothing.
 *
 * Each is written where it would be made:
 *
 *   if (CA_MUTANT(SEEN_BEFORE_WAIT))
 *           publish(...);
 *
 * In everything that is shipped CA_MUTANT() is a constant 0, so the compiler drops what depends on
 * it. One object of the tests (tests/stress/meson.build) is built with CA_MUTANTS defined; there
 * the environment variable CACHEALLOC_TEST_MUTANT names the one mistake that is made.
 */
#pragma once

/*
 * STAMP_BEFORE_CALL     a submission is stamped before the real call instead of after it
 * SEEN_BEFORE_WAIT      a guard's generation is published before its wait was inserted
 * SNAPSHOT_UNCHECKED    an event's snapshot is used without a second look after the real wait
 * INHERITED_DROPPED     a free forgets the block's inherited users
 * DTOD_IS_FINISH        a device-to-device copy counts as a finish of its stream
 * MARK_AT_GUARD         a mark is recorded when a guard needs it
 * GUARD_OFF_IN_CAPTURE  no guard while anything captures
 * PDL_KEPT              the programmatic attribute of a launch is never replaced
 * BARRIER_TRUSTED       it is kept where only the legacy stream's barrier orders the launch
 * PER_THREAD_MARK       a mark for another thread's per-thread stream goes to the caller's own
 * STALE_HANDLE          the record of a stream outlives its destruction
 * LEGACY_IN_FRONT       the legacy stream goes on before blocking streams that are armed are marked
 * BLOCK_BEFORE_MARK     a freed block is published before its mark is recorded
 * GUARD_OFF             no guard at all
 * REUSE_AT_ONCE         every mark that is asked for is done
 * OWN_CONTEXT_ONLY      a free looks at the block's own context only
 * SETTLE_SKIPPED        memory is given to somebody who is no stream while it may still be in use
 * REGISTRATION_LOST     what was given to somebody who is no stream is handed out unfinished again
 * OLD_ORDER_COUNTS      a free drops users that another one waited for at an earlier time
 * OLD_STAMP_STANDS      a stream's stamp from before a wait counts for what it waited for
 * ONE_USER_UNGUARDED    of several users of memory handed out, one is not exposed
 * SNAPSHOT_AFTER_QUERY  an event's snapshot is taken after the real query instead of before
 * SNAPSHOT_AFTER_WAIT   the same of a wait for the event
 * KEPT_UNFINISHED       what a thread keeps is handed out though its stream has not finished
 * KEPT_OF_SEVERAL       what several streams may use is kept as one's
 * KEPT_LEFT_OUT         of several that may use what is kept the last one is not waited for
 * ATTENTION_IGNORED     the quick free takes every space for a usual one
 * WRONG_SHELF           a thread that goes to another context takes what it kept of the last one
 * FAILED_RECORD_TEACHES an event teaches although its record failed
 * CAPTURED_RECORD_TEACHES an event teaches although its record began in a capture
 * GREEN_UNSEEN          a green context changes nothing
 * ASSUMPTIONS_UNPROBED      every assumption about the driver is taken for kept
 * OLDER_FORGOTTEN       where the host has paused, what it submitted before counts as finished
 * PAUSE_UNSEEN          a pause of the host is never noticed
 * PINNED_AT_ONCE        page-locked memory is handed out while work may use it
 * PINNED_ONE_CONTEXT    a synchronisation of one context tells of page-locked memory for all
 * EXTENT_UNMAPPED_EARLY a retired extent is unmapped while work may still use it
 * HELD_UNMAPPED         memory that a stream still holds is unmapped
 * HANDLE_CUT            part of a handle is unmapped as if it were a whole one
 * TOLD_ANY_STREAM       told memory serves any stream at once
 * TOLD_FOLLOWS_ANY      a stream that waited for another one once follows all that it frees
 * TOLD_MARK_EARLY       told memory is everybody's before its mark is done
 * TOLD_WAIT_SKIPPED     told memory is handed out for a wait that is not inserted
 * TOLD_BIRTH_UNORDERED  the rest of a new told segment is everybody's at once
 * TOLD_LEGACY_ALONE     told memory freed in a default stream has that user only; no operation
 * TOLD_NO_OPERATION     a call served in a default or blocking stream is no operation there
 * TOLD_KEPT_FREE        told memory that was kept for its stream has no users afterwards
 * TOLD_HOST_FREE        told memory freed by cuMemFree has no users
 * EXTENT_LEFT_EARLY     mapped memory that has moved leaves its old addresses while work uses them
 * EXTENT_USER_LOST      it comes to its new place without the streams that may still use it
 * EXTENT_HAND_IGNORED   the end of a context takes what another thread is unmapping
 * EXTENT_ADDRESSES_GONE it gives addresses back at which another thread has memory mapped
 * EXTENT_GROWS_DEAD     memory is mapped for a context that has ended
 * EXTENT_UNMAPPED_ONCE  what the driver did not unmap while the context ended stays
 * DEAD_WITH_BLOCKS      blocks of such a context are in the records while its memory is unmapped
 * TAKING_UNCOUNTED      what is on its way to a space counts for no limit
 * LEFT_UNCOUNTED        nor does memory that is mapped at an old address only
 * CAPTURE_UNASKED       while something captures, a miss is served as ever
 * CAPTURED_KEPT         memory handed out in a capture goes to a magazine at its free
 * MISS_OF_SEVERAL       of several users of what a miss takes all but one are forgotten
 * MISS_UNEXPOSED        what a miss takes of the one stream is not exposed
 * FOREIGN_UNSTAMPED     work of another space leaves the epoch as it is
 * MERGED_STAMP_OLD      the earlier use of two neighbours counts for what they have become
 * LEASES_GO_ON          leases go on whoever takes the heap's lock
 * LEASED_IN_CAPTURE     a leased segment serves requests in a capture
 * LEASED_OVER_HELD      a segment is leased although a block of it waits
 * LEASED_USER_LOST      what a stream may still use becomes free in a leased segment
 * LEASE_UNLOCKED        another thread frees in a leased segment without the lease's lock
 * LEASE_ENTERS_OVER     of two leases that enter a block at one place both do
 * LEASE_UNCOUNTED       blocks that a lease has entered are not counted when it ends
 * LEASE_SPARES_UNEQUAL  a lease comes to have more places than blocks
 */
#define CA_MUTANT_NAMES(X)                                                                         \
	X(STAMP_BEFORE_CALL)                                                                       \
	X(SEEN_BEFORE_WAIT)                                                                        \
	X(SNAPSHOT_UNCHECKED)                                                                      \
	X(INHERITED_DROPPED)                                                                       \
	X(DTOD_IS_FINISH)                                                                          \
	X(MARK_AT_GUARD)                                                                           \
	X(GUARD_OFF_IN_CAPTURE)                                                                    \
	X(PDL_KEPT)                                                                                \
	X(PER_THREAD_MARK)                                                                         \
	X(STALE_HANDLE)                                                                            \
	X(LEGACY_IN_FRONT)                                                                         \
	X(BLOCK_BEFORE_MARK)                                                                       \
	X(GUARD_OFF)                                                                               \
	X(PAUSE_UNSEEN)                                                                            \
	X(PINNED_AT_ONCE)                                                                          \
	X(PINNED_ONE_CONTEXT)                                                                      \
	X(REUSE_AT_ONCE)                                                                           \
	X(OWN_CONTEXT_ONLY)                                                                        \
	X(OLD_ORDER_COUNTS)                                                                        \
	X(SETTLE_SKIPPED)                                                                          \
	X(REGISTRATION_LOST)                                                                       \
	X(OLD_STAMP_STANDS)                                                                        \
	X(ONE_USER_UNGUARDED)                                                                      \
	X(SNAPSHOT_AFTER_QUERY)                                                                    \
	X(SNAPSHOT_AFTER_WAIT)                                                                     \
	X(KEPT_UNFINISHED)                                                                         \
	X(KEPT_OF_SEVERAL)                                                                         \
	X(KEPT_LEFT_OUT)                                                                           \
	X(ATTENTION_IGNORED)                                                                       \
	X(WRONG_SHELF)                                                                             \
	X(FAILED_RECORD_TEACHES)                                                                   \
	X(CAPTURED_RECORD_TEACHES)                                                                 \
	X(GREEN_UNSEEN)                                                                            \
	X(ASSUMPTIONS_UNPROBED)                                                                    \
	X(OLDER_FORGOTTEN)                                                                         \
	X(BARRIER_TRUSTED)                                                                         \
	X(EXTENT_UNMAPPED_EARLY)                                                                   \
	X(HELD_UNMAPPED)                                                                           \
	X(HANDLE_CUT)                                                                              \
	X(TOLD_ANY_STREAM)                                                                         \
	X(TOLD_FOLLOWS_ANY)                                                                        \
	X(TOLD_MARK_EARLY)                                                                         \
	X(TOLD_WAIT_SKIPPED)                                                                       \
	X(TOLD_BIRTH_UNORDERED)                                                                    \
	X(TOLD_LEGACY_ALONE)                                                                       \
	X(TOLD_NO_OPERATION)                                                                       \
	X(TOLD_KEPT_FREE)                                                                          \
	X(TOLD_HOST_FREE)                                                                          \
	X(EXTENT_LEFT_EARLY)                                                                       \
	X(EXTENT_USER_LOST)                                                                        \
	X(EXTENT_HAND_IGNORED)                                                                     \
	X(EXTENT_ADDRESSES_GONE)                                                                   \
	X(EXTENT_GROWS_DEAD)                                                                       \
	X(EXTENT_UNMAPPED_ONCE)                                                                    \
	X(DEAD_WITH_BLOCKS)                                                                        \
	X(TAKING_UNCOUNTED)                                                                        \
	X(LEFT_UNCOUNTED)                                                                          \
	X(CAPTURE_UNASKED)                                                                         \
	X(CAPTURED_KEPT)                                                                           \
	X(MISS_OF_SEVERAL)                                                                         \
	X(MISS_UNEXPOSED)                                                                          \
	X(FOREIGN_UNSTAMPED)                                                                       \
	X(MERGED_STAMP_OLD)                                                                        \
	X(LEASES_GO_ON)                                                                            \
	X(LEASED_IN_CAPTURE)                                                                       \
	X(LEASED_OVER_HELD)                                                                        \
	X(LEASED_USER_LOST)                                                                        \
	X(LEASE_UNLOCKED)                                                                          \
	X(LEASE_ENTERS_OVER)                                                                       \
	X(LEASE_UNCOUNTED)                                                                         \
	X(LEASE_SPARES_UNEQUAL)

enum ca_mutant {
	CA_MUTANT_NONE,
#define X(name) CA_MUTANT_##name,
	CA_MUTANT_NAMES(X)
#undef X
};

#ifdef CA_MUTANTS
#include <sched.h>

/* Set before main() by tests/stress/mutant.c. */
extern enum ca_mutant ca_mutant_chosen __attribute__((visibility("hidden")));

#define CA_MUTANT(name) __builtin_expect(ca_mutant_chosen == CA_MUTANT_##name, 0)
/* The same of a mistake between two threads' steps: first lets the other thread run, so that the
 * mistake is made with one processor, too. */
#define CA_MUTANT_BETWEEN(name) (CA_MUTANT(name) && !sched_yield())
#else
#define CA_MUTANT(name) (CA_MUTANT_##name == CA_MUTANT_NONE) /* 0, and the name is checked */
#define CA_MUTANT_BETWEEN(name) CA_MUTANT(name)
#endif
