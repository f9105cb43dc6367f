/* SPDX-License-Identifier: MIT */
/* Rules 1, 2 and 4: who the users of a freed block are, and what a mark of theirs covers. */
#include "tests/process/order/rules.h"

/* The stream that filled it first is still a user two lives later. */
static void
inherited_user_through_two_lives(void)
{
	CUstream s, r;
	CUdeviceptr x;

	order_start();
	s = order_stream(NONBLOCKING);
	r = order_stream(NONBLOCKING);
	x = order_take(BIG);
	order_fill(x, 1, LONG, s);
	x = order_again(x, BIG);
	x = order_again(x, BIG);
	OK(cuMemsetD32Async(x, 7, WORDS, r));
	order_check(x, 7, r);
	order_end();
}

/* As above, and each life has a user of its own. */
static void
every_life_adds_a_user(void)
{
	CUstream streams[4];
	CUdeviceptr x;

	order_start();
	for (int i = 0; i < 4; i++)
		streams[i] = order_stream(NONBLOCKING);
	x = order_take(BIG);
	for (int i = 0; i < 24; i++) {
		order_fill(x, (uint32_t)i, LONG / 10, streams[i % 4]);
		order_check(x, (uint32_t)i, streams[i % 4]);
		x = order_again(x, BIG);
	}
	order_use(x, 99, streams[0]);
	order_end();
}

/* Both parts of a split block keep the user of the whole. */
static void
both_parts_keep_the_user_of_the_whole(void)
{
	CUdeviceptr whole, first, second;
	CUstream s, r, q;

	order_start();
	s = order_stream(NONBLOCKING);
	r = order_stream(NONBLOCKING);
	q = order_stream(NONBLOCKING);
	whole = order_take(BIG);
	order_fill(whole, 1, LONG, s);
	order_fill(whole + PART, 1, LONG, s);
	order_give(whole);
	first = order_take(PART);
	second = order_take(PART);
	order_use(first, 2, r);
	order_use(second, 3, q);
	order_end();
}

/* Neighbours of one stream merge: the later of the two uses counts for the whole. */
static void
merged_neighbours_keep_the_later_use(void)
{
	CUdeviceptr first, second, whole;
	CUstream s, r;

	order_start();
	s = order_stream(NONBLOCKING);
	r = order_stream(NONBLOCKING);
	for (int turn = 0; turn < 2; turn++) {
		first = order_take(PART);
		second = order_take(PART);
		order_fill(turn ? first : second, 1, LONG / 4, s);
		order_fill(turn ? second : first, 1, LONG, s);
		order_give(turn ? second : first);
		order_give(turn ? first : second);
		whole = order_take(2 * PART);
		order_use(whole, 2, r);
		order_use(whole + PART, 3, r);
		order_give(whole);
	}
	order_end();
}

/* The same, and the earlier use has a mark of its own, and its place among the free ones. */
static void
merged_neighbours_of_two_frees(void)
{
	CUdeviceptr part[2], whole, other;
	CUstream s, r;

	order_start();
	s = order_stream(NONBLOCKING);
	r = order_stream(NONBLOCKING);
	for (int turn = 0; turn < 4; turn++) {
		part[0] = order_take(PART);
		part[1] = order_take(PART);
		order_use(part[0], 1, r);
		OK(cuStreamSynchronize(r));
		order_fill(part[turn % 2], 1, 1, s);
		order_give(part[turn % 2]);
		other = order_take(BIG + turn * MIB);
		order_fill(part[!(turn % 2)], 1, LONG, s);
		order_give(part[!(turn % 2)]);
		whole = order_take(2 * PART);
		order_use(whole, 2, r);
		order_use(whole + PART, 3, r);
		order_give(whole);
		order_give(other);
		OK(cuCtxSynchronize());
	}
	order_end();
}

/* Neighbours with different users, taken as one. */
static void
neighbours_of_two_streams_do_not_mix(void)
{
	CUdeviceptr first, second, whole;
	CUstream s, r, q;

	order_start();
	s = order_stream(NONBLOCKING);
	r = order_stream(NONBLOCKING);
	q = order_stream(NONBLOCKING);
	first = order_take(PART);
	second = order_take(PART);
	order_fill(first, 1, LONG, s);
	order_fill(second, 1, LONG, r);
	order_give(first);
	order_give(second);
	whole = order_take(2 * PART);
	order_use(whole, 2, q);
	order_use(whole + PART, 3, q);
	order_end();
}

/* Memory that the only stream still uses is cut for another request, merged for a larger one,
 * and so no thread's own block: then a second stream is made. */
static void
only_stream_then_a_second_one(void)
{
	CUdeviceptr x, y;
	CUstream s, r;

	order_start();
	s = order_stream(NONBLOCKING);
	for (int i = 0; i < 3; i++) {
		x = order_take(BIG);
		order_fill(x, 1, LONG, s);
		order_fill(x + PART, 1, LONG, s);
		order_give(x);
		x = order_take(PART);
		y = order_take(PART - MIB);
		order_fill(y + MIB, 1, 1, s);
		order_give(x);
		order_give(y);
		x = order_take(BIG);
		r = order_stream(NONBLOCKING);
		order_use(x, 2, r);
		order_use(x + PART, 3, r);
		order_give(x);
		OK(cuStreamDestroy_v2(r));
		OK(cuCtxSynchronize());
	}
	order_end();
}

static void
block_with_two_users_waits_for_both(void)
{
	CUstream s, r, q;
	CUevent event;
	CUdeviceptr x;

	order_start();
	s = order_stream(NONBLOCKING);
	r = order_stream(NONBLOCKING);
	q = order_stream(NONBLOCKING);
	event = order_event();
	for (int i = 0; i < 4; i++) {
		x = order_take(BIG);
		order_fill(x, 1, LONG / 4, s);
		OK(cuEventRecord(event, s));
		OK(cuStreamWaitEvent(r, event, 0));
		order_check(x, 1, r);
		order_copy(x + MIB, x, LONG / 4, r);
		x = order_again(x, BIG);
		order_use(x, 2, i % 2 ? q : s);
		order_use(x + MIB, 2, i % 2 ? q : s);
		order_give(x);
	}
	order_end();
}

/* Blocks that nothing used were handed out between; the users are found all the same. */
static void
untouched_blocks_between(void)
{
	CUdeviceptr x, y;
	CUstream s, r;

	order_start();
	s = order_stream(NONBLOCKING);
	r = order_stream(NONBLOCKING);
	for (int i = 0; i < 8; i++) {
		x = order_take(BIG);
		y = order_take(BIG);
		order_fill(x, 1, LONG / 4, s);
		order_give(y);
		y = order_take(BIG);
		order_give(x);
		x = order_take(BIG);
		order_use(x, 2, r);
		order_use(y, 3, r);
		order_give(x);
		order_give(y);
	}
	order_end();
}

/* A stream whose first work comes after the memory was handed out. */
static void
new_stream_is_ordered_after_nothing(void)
{
	CUstream s, r;
	CUdeviceptr x;

	order_start();
	s = order_stream(NONBLOCKING);
	x = order_take(BIG);
	order_fill(x, 1, LONG, s);
	x = order_again(x, BIG);
	r = order_stream(NONBLOCKING);
	order_use(x, 2, r);
	order_end();
}

/* Memory exposed while one stream existed; the second one appears between its kernels. */
static void
second_stream_appears_in_mid_life(void)
{
	CUstream s, r;
	CUdeviceptr x;

	order_start();
	s = order_stream(NONBLOCKING);
	x = order_take(BIG);
	order_fill(x, 1, LONG, s);
	x = order_again(x, BIG);
	order_fill(x, 2, 0, s);
	x = order_again(x, BIG);
	r = order_stream(NONBLOCKING);
	order_fill(x + MIB, 2, LONG, s);
	order_use(x, 3, r);
	order_end();
}

/* The legacy stream orders blocking streams, and no others. */
static void
legacy_memory_goes_to_other_streams(void)
{
	CUstream s, r;
	CUdeviceptr x;

	order_start();
	s = order_stream(BLOCKING);
	r = order_stream(NONBLOCKING);
	x = order_take(BIG);
	for (int i = 0; i < 4; i++) {
		order_fill(x, 1, LONG / 4, NULL);
		x = order_again(x, BIG);
		order_use(x, 2, i % 2 ? s : r);
		order_fill(x, 2, LONG / 4, i % 2 ? s : r);
		x = order_again(x, BIG);
		order_use(x, 3, NULL);
	}
	order_end();
}

static void
blocking_streams_are_not_ordered_with_each_other(void)
{
	CUstream s, r;
	CUdeviceptr x;

	order_start();
	s = order_stream(BLOCKING);
	r = order_stream(BLOCKING);
	x = order_take(BIG);
	for (int i = 0; i < 4; i++) {
		order_fill(x, 1, LONG / 4, s);
		x = order_again(x, BIG);
		order_use(x, 2, r);
		x = order_again(x, BIG);
	}
	order_end();
}

/* Copies and sets name their memory: what they do not touch they need not wait for, and what the
 * next kernel touches is still guarded. */
static void
a_copy_elsewhere_guards_nothing_for_the_kernel_after_it(void)
{
	CUdeviceptr x, other;
	CUstream s, r;

	order_start();
	s = order_stream(NONBLOCKING);
	r = order_stream(NONBLOCKING);
	other = order_take(BIG);
	x = order_take(BIG);
	order_fill(x, 1, LONG, s);
	x = order_again(x, BIG);
	OK(cuMemsetD32Async(other, 5, WORDS, r));
	OK(cuMemcpyDtoDAsync_v2(other + MIB, other, WORDS * 4, r));
	order_use(x, 2, r);
	order_check(other + MIB, 5, r);
	order_end();
}

/* The copy names the block by an address inside, at its end, or as its source. */
static void
a_copy_into_the_middle_is_guarded(void)
{
	CUdeviceptr x, other;
	CUstream s, r;

	order_start();
	s = order_stream(NONBLOCKING);
	r = order_stream(NONBLOCKING);
	other = order_take(BIG);
	for (int i = 0; i < 3; i++) {
		x = order_take(BIG);
		order_fill(x + BIG - WORDS * 4, 1, LONG / 2, s);
		x = order_again(x, BIG);
		if (i == 0)
			OK(cuMemsetD32Async(x + BIG - WORDS * 4, 2, WORDS, r));
		else if (i == 1)
			OK(cuMemcpyAsync(x + BIG - WORDS * 4, other, WORDS * 4, r));
		else
			OK(cuMemcpyDtoDAsync_v2(other, x + BIG - WORDS * 4, WORDS * 4, r));
		OK(cuStreamSynchronize(r));
		OK(cuStreamSynchronize(s));
		order_give(x);
	}
	order_end();
}

/* Small blocks share a segment, and come and go in all sizes. */
static void
small_blocks_of_one_segment(void)
{
	CUdeviceptr blocks[32] = { 0 };
	CUstream streams[3];

	order_start();
	for (int i = 0; i < 3; i++)
		streams[i] = order_stream(i % 2);
	for (unsigned i = 0; i < 400; i++) {
		CUdeviceptr *block = &blocks[i * 7 % 32];

		if (*block)
			order_give(*block);
		*block = order_take(WORDS * 4 + i * 37 % 24 * 4096);
		order_use(*block, i, streams[i * 5 % 3]);
	}
	order_end();
}

/* Nothing covers what was submitted after the free: the new owner's own work must not be waited for
 * by itself, and the old one's must. */
static void
the_old_owner_goes_on_after_the_free(void)
{
	CUdeviceptr x, own;
	CUstream s, r;

	order_start();
	s = order_stream(NONBLOCKING);
	r = order_stream(NONBLOCKING);
	own = order_take(BIG);
	for (int i = 0; i < 4; i++) {
		x = order_take(BIG);
		order_fill(x, 1, LONG / 4, s);
		order_give(x);
		order_fill(own, 1, LONG / 4, s);
		x = order_take(BIG);
		order_use(x, 2, r);
		order_fill(own, 2, LONG / 4, s);
		x = order_again(x, BIG);
		order_use(x, 3, s);
		order_give(x);
	}
	order_end();
}

/*
 * A mark of a blocking stream that is recorded behind a kernel of the legacy stream comes after it,
 * and this one waits for the host, which has its own to do with that memory first. cuMemFree waits
 * for the blocking stream natively.
 */
static void
before_a_kernel_of_the_legacy_stream(size_t bytes, int number, bool first)
{
	CUstream b = order_stream(BLOCKING), r = order_stream(NONBLOCKING);
	volatile uint32_t *word = order_word();
	CUdeviceptr x[12];

	for (int i = 0; i < number; i++) {
		x[i] = order_take(bytes);
		if (!first)
			order_use(x[i], 1, NULL);
		order_use(x[i], 1, b);
		OK(cuCtxSynchronize());
		order_use(x[i], 1, r);
		OK(cuCtxSynchronize());
	}
	for (int i = 0; i < number; i++)
		order_fill(x[i], 1, 2 * LONG, b);
	for (int i = 0; i < number; i++)
		order_give(x[i]);
	order_wait(word, 1, NULL);
	for (int i = 0; i < number; i++) {
		x[i] = order_take(bytes);
		order_use(x[i], 2, r);
	}
	OK(cuStreamSynchronize(r));
	*word = 1;
	for (int i = 0; i < number; i++)
		order_give(x[i]);
	order_end();
}

static void
before_a_legacy_kernel_that_waits(void)
{
	order_start();
	before_a_kernel_of_the_legacy_stream(BIG, 12, false);
}

static void
before_the_first_legacy_kernel_which_waits(void)
{
	order_start();
	before_a_kernel_of_the_legacy_stream(BIG, 12, true);
}

/* A device of 320 MiB has no more. */
static void
most_memory_before_a_legacy_kernel_that_waits(void)
{
	order_start();
	before_a_kernel_of_the_legacy_stream(200 * MIB, 1, false);
}

const struct order_case rules_users[] = {
	{ "t1_inherited_user_through_two_lives", inherited_user_through_two_lives },
	{ "t1_every_life_adds_a_user", every_life_adds_a_user },
	{ "t1_both_parts_keep_the_user_of_the_whole", both_parts_keep_the_user_of_the_whole },
	{ "t1_merged_neighbours_keep_the_later_use", merged_neighbours_keep_the_later_use },
	{ "t1_merged_neighbours_of_two_frees", merged_neighbours_of_two_frees },
	{ "t1_neighbours_of_two_streams_do_not_mix", neighbours_of_two_streams_do_not_mix },
	{ "t1_only_stream_then_a_second_one", only_stream_then_a_second_one },
	{ "t1_block_with_two_users_waits_for_both", block_with_two_users_waits_for_both },
	{ "t1_untouched_blocks_between", untouched_blocks_between },
	{ "t1_small_blocks_of_one_segment", small_blocks_of_one_segment },
	{ "t4_second_stream_appears_in_mid_life", second_stream_appears_in_mid_life },
	{ "t4_the_old_owner_goes_on_after_the_free", the_old_owner_goes_on_after_the_free },
	{ "t6_new_stream_is_ordered_after_nothing", new_stream_is_ordered_after_nothing },
	{ "t6_a_copy_elsewhere_guards_nothing_for_the_kernel_after_it",
	  a_copy_elsewhere_guards_nothing_for_the_kernel_after_it },
	{ "t6_a_copy_into_the_middle_is_guarded", a_copy_into_the_middle_is_guarded },
	{ "t11_legacy_memory_goes_to_other_streams", legacy_memory_goes_to_other_streams },
	{ "t11_before_a_legacy_kernel_that_waits", before_a_legacy_kernel_that_waits },
	{ "t11_before_the_first_legacy_kernel_which_waits",
	  before_the_first_legacy_kernel_which_waits },
	{ "t11_most_memory_before_a_legacy_kernel_that_waits",
	  most_memory_before_a_legacy_kernel_that_waits },
	{ "t11_blocking_streams_are_not_ordered_with_each_other",
	  blocking_streams_are_not_ordered_with_each_other },
	{ NULL, NULL },
};
