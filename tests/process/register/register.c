/* SPDX-License-Identifier: MIT */
/*
 * Memory given to those who are no streams. Natively each program is right, since cuMemFree waits
 * for the device: what such a one reads or writes was finished with long ago.
 */
#include "tests/process/register/register.h"

#include <dlfcn.h>

CUstream stream;

void *
nic_function(const char *soname, const char *name)
{
	void *library = dlopen(soname, RTLD_NOW), *found;

	EXPECT(library);
	found = dlsym(library, name);
	EXPECT(found);
	return found;
}

int
nic_moves(CUdeviceptr address, int receives)
{
	int (*transfer)(uint64_t, size_t, int);

	*(void **)&transfer = nic_function("libibverbs.so.1", "nic_transfer");
	return transfer(address, 4 * WORDS, receives);
}

static struct ibv_mr *
verbs_register(CUdeviceptr address, size_t bytes)
{
	struct ibv_mr *(*reg_mr)(void *, void *, size_t, int);

	*(void **)&reg_mr = nic_function("libibverbs.so.1", "ibv_reg_mr");
	return reg_mr(NULL, (void *)(uintptr_t)address, bytes, 0);
}

/* A device that is no stream. */
struct device {
	void (*is_given)(CUdeviceptr address, size_t bytes);
	void (*moves)(CUdeviceptr address, int receives);
};

static void
card_is_given(CUdeviceptr address, size_t bytes)
{
	EXPECT(verbs_register(address, bytes));
}

static void
card_moves(CUdeviceptr address, int receives)
{
	(void)nic_moves(address, receives);
}

static const struct device card = { card_is_given, card_moves };

static CUdeviceptr flagged_from, flagged_to;

/* One of which nothing is seen but the flag that is set for it, as UCX and GDRCopy do. */
static void
set_sync_memops(CUdeviceptr address, size_t bytes)
{
	unsigned yes = 1;

	flagged_from = address;
	flagged_to = address + bytes;
	OK(cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address));
}

extern void simcuda_touch(unsigned long long address, size_t n, int writes) __attribute__((weak));

static void
device_moves(CUdeviceptr address, int receives)
{
	if (simcuda_touch && address >= flagged_from && address + 4 * WORDS <= flagged_to)
		simcuda_touch(address, 4 * WORDS, receives);
}

static const struct device by_flag = { set_sync_memops, device_moves };

CUdeviceptr
unfinished(void)
{
	CUdeviceptr x;

	order_start();
	stream = order_stream(NONBLOCKING);
	x = order_take(BIG);
	order_fill(x, 1, LONG, stream);
	return order_again(x, BIG);
}

CUdeviceptr
unfinished_beside_another(void)
{
	CUdeviceptr x;

	order_start();
	stream = order_stream(NONBLOCKING);
	order_fill(order_take(PART), 1, 0, order_stream(NONBLOCKING));
	x = order_take(BIG);
	order_fill(x, 1, LONG, stream);
	return order_again(x, BIG);
}

static void
is_settled_and_received(CUdeviceptr x)
{
	EXPECT(verbs_register(x, BIG));
	EXPECT(!nic_moves(x, 1));
	order_use(x, 3, stream);
	order_end();
}

static void
first_in_a_quiet_space(void)
{
	is_settled_and_received(unfinished());
}

static void
first_beside_another_stream(void)
{
	is_settled_and_received(unfinished_beside_another());
}

/* One range over several blocks, each with an unfinished user. */
static void
several_blocks_at_once(void)
{
	CUdeviceptr part[3];

	order_start();
	stream = order_stream(NONBLOCKING);
	for (int i = 0; i < 3; i++)
		part[i] = order_take(PART);
	for (int i = 0; i < 3; i++)
		order_fill(part[i], 1, LONG, stream);
	for (int i = 0; i < 3; i++)
		part[i] = order_again(part[i], PART);
	EXPECT(verbs_register(part[0] < part[2] ? part[0] : part[2], 3 * (size_t)PART));
	for (int i = 0; i < 3; i++)
		if (!nic_moves(part[i], 1))
			order_use(part[i], 3, stream);
	order_end();
}

/* A registration cache finds the address again, and asks nobody. Small blocks and large ones, with
 * what was merged and cut in between. */
static void
outlives_the_free_of(size_t bytes, CUstream (*next)(void), const struct device *device)
{
	CUdeviceptr x;

	order_start();
	stream = order_stream(NONBLOCKING);
	x = order_take(bytes);
	device->is_given(x, bytes);
	for (uint32_t i = 0; i < 8; i++) {
		order_use(x, i, next());
		x = order_again(x, bytes);
		device->moves(x, i % 2);
		if (i == 4) { /* a larger block, of which what was registered is a part */
			order_give(x);
			x = order_take(bytes / 2);
			device->moves(x, 1);
			order_fill(x, 7, LONG, stream);
			order_give(x);
			x = order_take(bytes);
			device->moves(x, 1);
		}
	}
	order_end();
}

static CUstream
the_stream(void)
{
	return stream;
}

static CUstream
one_after_the_other(void)
{
	static CUstream other;

	if (!other)
		other = order_stream(NONBLOCKING);
	CUstream now = stream;

	stream = other;
	other = now;
	return now;
}

static void
outlives_the_free_small(void)
{
	outlives_the_free_of(64 << 10, the_stream, &card);
}

static void
outlives_the_free_large(void)
{
	outlives_the_free_of(BIG, the_stream, &card);
}

static void
outlives_the_free_part(void)
{
	outlives_the_free_of(PART, the_stream, &card);
}

static void
outlives_the_free_two_streams(void)
{
	outlives_the_free_of(BIG, one_after_the_other, &card);
}

static void
outlives_the_free_flag_small(void)
{
	outlives_the_free_of(64 << 10, the_stream, &by_flag);
}

static void
outlives_the_free_flag_part(void)
{
	outlives_the_free_of(PART, the_stream, &by_flag);
}

static void
outlives_the_free_flag_two_streams(void)
{
	outlives_the_free_of(BIG, one_after_the_other, &by_flag);
}

/* What two streams use, and another block of each of them beside it: together they would do. */
static void
beside_what_would_do_together(void)
{
	CUstream other;
	CUdeviceptr given, x, y;

	order_start();
	stream = order_stream(NONBLOCKING);
	other = order_stream(NONBLOCKING);
	given = order_take(PART);
	EXPECT(verbs_register(given, PART));
	order_fill(given, 1, LONG, other);
	x = order_take(PART);
	order_fill(given + MIB, 1, LONG, stream);
	order_give(x);
	order_fill(given, 1, LONG, other);
	y = order_take(8 * MIB);
	order_fill(y, 1, LONG, other);
	order_give(y);
	order_give(given);
	x = order_take(BIG);
	(void)nic_moves(x, 1);
	order_use(x, 3, stream);
	order_end();
}

/* Only the range: what lies beside it in the segment goes on as before. */
static void
beside_a_range(void)
{
	CUdeviceptr x, given;

	order_start();
	stream = order_stream(NONBLOCKING);
	given = order_take(PART);
	x = order_take(PART);
	EXPECT(verbs_register(given, PART));
	for (uint32_t i = 0; i < 20; i++) {
		order_use(x, i, stream);
		x = order_again(x, PART);
	}
	EXPECT(!nic_moves(given, 1));
	order_end();
}

/* ---- what a settle waits for */

/* Work that goes on until the host has registered the memory. */
static void
later_work_waits_for(CUdeviceptr x)
{
	volatile uint32_t *word = order_word();

	order_wait(word, 1, stream);
	EXPECT(verbs_register(x, BIG));
	EXPECT(!nic_moves(x, 1));
	*word = 1;
	order_end();
}

static void
later_work_on_the_stream(void)
{
	later_work_waits_for(unfinished_beside_another());
}

/* The first block in a space of one stream: an operation that waits for the host is marked before,
 * whatever its kind. */
static void
a_later_wait_for_a_value(void)
{
	CUdeviceptr x = unfinished();
	volatile uint32_t *word = order_word();

	OK(cuStreamWaitValue32_v2(stream, (CUdeviceptr)(uintptr_t)word, 1, WAIT_EQ));
	EXPECT(verbs_register(x, BIG));
	EXPECT(!nic_moves(x, 1));
	*word = 1;
	order_end();
}

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;

static void
wait_for_the_host(void *arg)
{
	pthread_mutex_lock(&held);
	pthread_mutex_unlock(&held);
}

static void
a_later_host_function(void)
{
	CUdeviceptr x = unfinished();

	pthread_mutex_lock(&held);
	OK(cuLaunchHostFunc(stream, wait_for_the_host, NULL));
	EXPECT(verbs_register(x, BIG));
	EXPECT(!nic_moves(x, 1));
	pthread_mutex_unlock(&held);
	order_end();
}

/* From the second time on the marks are exact in a space of one stream, too. */
static void
later_kernel_from_the_second_time_on(void)
{
	CUdeviceptr x, first = unfinished();

	EXPECT(verbs_register(first, BIG));
	x = order_take(BIG);
	order_fill(x, 1, LONG, stream);
	later_work_waits_for(order_again(x, BIG));
}

/* Who opens the card will register: the first time is exact, too. */
static void
later_kernel_after_the_card_is_opened(void)
{
	void *(*alloc_pd)(void *);
	CUdeviceptr x = unfinished();

	*(void **)&alloc_pd = nic_function("libibverbs.so.1", "ibv_alloc_pd");
	EXPECT(alloc_pd(NULL));
	later_work_waits_for(x);
}

static void
while_another_stream_captures(void)
{
	CUdeviceptr x = unfinished_beside_another();
	CUstream other = order_stream(NONBLOCKING);
	CUgraph graph;

	OK(cuStreamBeginCapture_v2(other, 0)); /* global: unsafe calls are errors in any thread */
	EXPECT(verbs_register(x, BIG));
	EXPECT(!nic_moves(x, 1));
	OK(cuStreamEndCapture(other, &graph));
	order_end();
}

static void
while_a_new_stream_captures(void)
{
	CUdeviceptr x = unfinished(), y = order_take(BIG);
	CUstream other = order_stream(NONBLOCKING);
	CUgraph graph;

	OK(cuStreamBeginCapture_v2(other, 0));
	order_fill(y, 1, 0, stream);
	EXPECT(verbs_register(x, BIG));
	EXPECT(!nic_moves(x, 1));
	OK(cuStreamEndCapture(other, &graph));
	order_end();
}

/* ---- what settles nothing */
static void
plain_queries(void)
{
	CUdeviceptr x = unfinished(), base;
	volatile uint32_t *word = order_word();
	unsigned long long data[4];
	size_t bytes;

	order_wait(word, 1, stream);
	OK(cuPointerGetAttribute(data, CU_POINTER_ATTRIBUTE_CONTEXT, x));
	OK(cuPointerGetAttribute(data, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, x));
	OK(cuPointerGetAttribute(data, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, x));
	OK(cuPointerGetAttribute(data, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, x));
	OK(cuPointerGetAttribute(data, CU_POINTER_ATTRIBUTE_RANGE_SIZE, x));
	OK(cuPointerGetAttribute(data, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, x));
	OK(cuMemGetAddressRange_v2(&base, &bytes, x + 5));
	EXPECT(base == x && bytes == BIG);
	*word = 1;
	order_end();
}

/* A library that is loaded has touched nothing. */
static void
presence(void)
{
	static const char *const sonames[] = { "libibverbs.so.1", "libcufile.so.0",
					       "libgdrapi.so.2", "libmlx5.so.1", "libcxi.so.1" };
	CUdeviceptr x = unfinished();

	for (int i = 0; i < 5; i++)
		EXPECT(dlopen(sonames[i], RTLD_NOW | RTLD_GLOBAL));
	for (uint32_t i = 0; i < 300; i++) {
		order_use(x, i, stream);
		x = order_again(x, BIG);
	}
	order_end();
}

/* A card keeps its translation of page-locked memory until it is told: with pinned:cache, too, such
 * memory goes back to the driver. Only the first of two is given to the card. */
static void
page_locked(void)
{
	uint32_t *memory[2];

	order_start();
	order_give(order_take(4 * WORDS));
	for (int i = 0; i < 2; i++)
		OK(cuMemHostAlloc((void **)&memory[i], 4 * WORDS, 0));
	EXPECT(verbs_register((CUdeviceptr)(uintptr_t)(memory[0] + 16), 64));
	for (int i = 0; i < 2; i++)
		OK(cuMemFreeHost(memory[i]));
	order_end();
}

const struct order_case register_cases[] = {
	{ "first_in_a_quiet_space", first_in_a_quiet_space },
	{ "first_beside_another_stream", first_beside_another_stream },
	{ "several_blocks_at_once", several_blocks_at_once },
	{ "outlives_the_free_small", outlives_the_free_small },
	{ "outlives_the_free_large", outlives_the_free_large },
	{ "outlives_the_free_part", outlives_the_free_part },
	{ "outlives_the_free_two_streams", outlives_the_free_two_streams },
	{ "outlives_the_free_flag_small", outlives_the_free_flag_small },
	{ "outlives_the_free_flag_part", outlives_the_free_flag_part },
	{ "outlives_the_free_flag_two_streams", outlives_the_free_flag_two_streams },
	{ "beside_what_would_do_together", beside_what_would_do_together },
	{ "beside_a_range", beside_a_range },
	{ "later_work_on_the_stream", later_work_on_the_stream },
	{ "a_later_wait_for_a_value", a_later_wait_for_a_value },
	{ "a_later_host_function", a_later_host_function },
	{ "later_kernel_from_the_second_time_on", later_kernel_from_the_second_time_on },
	{ "later_kernel_after_the_card_is_opened", later_kernel_after_the_card_is_opened },
	{ "while_another_stream_captures", while_another_stream_captures },
	{ "while_a_new_stream_captures", while_a_new_stream_captures },
	{ "plain_queries", plain_queries },
	{ "page_locked", page_locked },
	{ "presence", presence },
	{ NULL, NULL },
};

const struct order_case *const order_cases[] = { register_cases, register_api, register_roads,
						 NULL };
