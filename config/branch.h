/* SPDX-License-Identifier: MIT */
/*
 * Branches that are seldom come to: the tests count who has been there, and can have memory handed
 * out unfinished as often as the rules allow, for then they are come to.
 *
 * Each branch is named where it is taken:
 *
 *   if (!point) {
 *           CA_REACHED(POINT_MADE_LATE);
 *
 * In everything that is shipped both are nothing. One object of the tests
 * (tests/stress/meson.build) is built with CA_MUTANTS defined; there CACHEALLOC_TEST_BRANCHES names
 * the file to which the counts are added at the end of the process, and CACHEALLOC_TEST_EXPOSE=1
 * forces exposure; there an allocation at the end of the memory loses patience after 50 ms.
 */
#pragma once

#include <stdbool.h>

/*
 * Magazines: QUICK_TAKEN, QUICK_GIVEN (without the heap's lock); QUICK_GIVEN_SEVERAL,
 * QUICK_TAKEN_SEVERAL (several streams may use the block, may have used it).
 *
 * The guard (guard.c):
 * GUARD_ARMED          the stream was armed: a mark first, if one is missing
 * GUARD_UP_TO_DATE     nothing was exposed since the stream's last submission
 * GUARD_RAN            something was, whatever came of it
 * GUARD_NAMED          a copy that names its memory: only that memory's users were waited for
 * GUARD_NAMED_IN_VAIN  the users of that memory are not known: as if it named none
 * GUARD_OTHER_SPACE    something is exposed in another space that the submission may touch
 * GUARD_WAITED         a wait on the device was inserted
 * GUARD_OWN            what is exposed is the stream's own
 * GUARD_BY_DRIVER      the driver orders the two streams
 * GUARD_KNOWN          the stream waited for it before
 * GUARD_MARK_MADE_LATE no exact mark was there: one was recorded
 * GUARD_HOST_MARK      no wait could be inserted: the host waited for the mark,
 * GUARD_HOST_STREAM    for the stream,
 * GUARD_HOST_CONTEXT   for the context
 * GUARD_TWO_USERS      a submission had to wait for several streams
 *
 * Memory is exposed (search_early.c, early_reuse.c, multi_user.c, gather.c):
 * EXPOSED_OWN          used by the caller's own stream
 * EXPOSED_BEHIND       used by a stream that the caller's comes after by a wait
 * EXPOSED_BEHIND_SET   the same of memory of several users
 * EXPOSED_LATE         memory that has to be waited for
 * EXPOSED_LATE_SET     the same, of several users
 * EXPOSED_AT_THE_END   anybody's, before an allocation fails
 * EXPOSED_GATHERED     neighbours of different users, put together
 * EXPOSED_SEVERAL      several users were exposed at a time
 * EXPOSED_MARKED       the user had an exact mark
 * EXPOSED_ARMED        the user was armed, its mark not recorded yet
 * EXPOSED_PASSED_OVER  the user had neither
 * EXPOSED_HAZARD       the user's work is ended by somebody else: passed over
 * EXPOSED_IN_CAPTURE   something captured: passed over
 * SEVERAL_MAIN         a freed block of several users that the main stream comes after
 * SEVERAL_SET          one that waits in a set
 * SEVERAL_SETTLED      a user of such a block has finished
 * SEVERAL_ADOPTED      the main stream has come after such a block's users since
 *
 * Marks (stream_mark.c):
 * POINT_RECORDED       a mark was recorded
 * POINT_REFUSED        the driver or a capture refused it
 * POINT_NOT_DUE        armed, but no mark is missing
 * POINT_SAME_BOUND     a mark that is never the first to cover a stamp
 * POINT_FOUND_DONE     a mark was found to be done
 * POINT_BEFOREHAND     what is exposed is marked before a capture, a second stream or a wait for
 * the host begins
 */
#define CA_BRANCH_NAMES(X)                                                                         \
	X(QUICK_TAKEN)                                                                             \
	X(QUICK_GIVEN)                                                                             \
	X(QUICK_GIVEN_SEVERAL)                                                                     \
	X(QUICK_TAKEN_SEVERAL)                                                                     \
	X(GUARD_ARMED)                                                                             \
	X(GUARD_UP_TO_DATE)                                                                        \
	X(GUARD_RAN)                                                                               \
	X(GUARD_NAMED)                                                                             \
	X(GUARD_NAMED_IN_VAIN)                                                                     \
	X(GUARD_OTHER_SPACE)                                                                       \
	X(GUARD_WAITED)                                                                            \
	X(GUARD_OWN)                                                                               \
	X(GUARD_BY_DRIVER)                                                                         \
	X(GUARD_KNOWN)                                                                             \
	X(GUARD_MARK_MADE_LATE)                                                                    \
	X(GUARD_HOST_MARK)                                                                         \
	X(GUARD_HOST_STREAM)                                                                       \
	X(GUARD_HOST_CONTEXT)                                                                      \
	X(GUARD_TWO_USERS)                                                                         \
	X(EXPOSED_OWN)                                                                             \
	X(EXPOSED_BEHIND)                                                                          \
	X(EXPOSED_BEHIND_SET)                                                                      \
	X(EXPOSED_LATE)                                                                            \
	X(EXPOSED_LATE_SET)                                                                        \
	X(EXPOSED_AT_THE_END)                                                                      \
	X(EXPOSED_GATHERED)                                                                        \
	X(EXPOSED_SEVERAL)                                                                         \
	X(EXPOSED_MARKED)                                                                          \
	X(EXPOSED_ARMED)                                                                           \
	X(EXPOSED_PASSED_OVER)                                                                     \
	X(EXPOSED_HAZARD)                                                                          \
	X(EXPOSED_IN_CAPTURE)                                                                      \
	X(SEVERAL_MAIN)                                                                            \
	X(SEVERAL_SET)                                                                             \
	X(SEVERAL_SETTLED)                                                                         \
	X(SEVERAL_ADOPTED)                                                                         \
	X(POINT_RECORDED)                                                                          \
	X(POINT_REFUSED)                                                                           \
	X(POINT_NOT_DUE)                                                                           \
	X(POINT_SAME_BOUND)                                                                        \
	X(POINT_FOUND_DONE)                                                                        \
	X(POINT_BEFOREHAND)

enum ca_branch {
#define X(name) CA_BRANCH_##name,
	CA_BRANCH_NAMES(X)
#undef X
		CA_BRANCHES,
};

#ifdef CA_MUTANTS
/* Set before main() by tests/stress/branch.c. */
extern bool ca_exposure_is_forced __attribute__((visibility("hidden")));
void ca_branch_reached(enum ca_branch branch) __attribute__((visibility("hidden")));

#define CA_EXPOSURE_FORCED __builtin_expect(ca_exposure_is_forced, 0)
#define CA_REACHED(name) ca_branch_reached(CA_BRANCH_##name)
#else
#define CA_EXPOSURE_FORCED false
#define CA_REACHED(name) ((void)CA_BRANCH_##name) /* nothing, and the name is checked */
#endif
