/* SPDX-License-Identifier: MIT */
/*
 * CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, as programs set it that show memory to network cards: each
 * allocation has its own flag, whatever it shares with others.
 */
#include "tests/process/shim/cases.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

enum { SMALL = 4 * KIB, LIVE = 10000, THREADS = 4, ROUNDS = 300 };

static const CUpointer_attribute FLAG = CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;

static CUdeviceptr
take(size_t bytes)
{
	CUdeviceptr block;

	OK(cuMemAlloc_v2(&block, bytes));
	return block;
}

static CUresult
set(CUdeviceptr pointer, unsigned value)
{
	return cuPointerSetAttribute(&value, FLAG, pointer);
}

/* By both questions; the second among others. */
static unsigned
get(CUdeviceptr pointer)
{
	CUpointer_attribute asked[] = { CU_POINTER_ATTRIBUTE_RANGE_SIZE, FLAG,
					CU_POINTER_ATTRIBUTE_MEMORY_TYPE, FLAG };
	unsigned alone = 77, first = 78, second = 79, type = 0;
	size_t size = 0;
	void *data[] = { &size, &first, &type, &second };

	OK(cuPointerGetAttribute(&alone, FLAG, pointer));
	OK(cuPointerGetAttributes(4, asked, data, pointer));
	EXPECT(alone == first && first == second && size && type == CU_MEMORYTYPE_DEVICE);
	return alone;
}

static void
each_has_its_own(void)
{
	CUdeviceptr block[3];

	case_start();
	for (int i = 0; i < 3; i++)
		block[i] = take(SMALL);
	printf("new: %u %u %u\n", get(block[0]), get(block[1]), get(block[2]));
	SHOW(set(block[1], 1));
	printf("one set: %u %u %u\n", get(block[0]), get(block[1]), get(block[2]));
	SHOW(set(block[2] + 100, 1));
	printf("inside: %u %u %u\n", get(block[0] + 1), get(block[1] + SMALL - 1), get(block[2]));
	SHOW(set(block[1], 0));
	printf("cleared: %u %u %u\n", get(block[0]), get(block[1]), get(block[2]));
	SHOW(set(block[0], 0));
	SHOW(set(block[1], 1));
	SHOW(set(block[1], 1));
	printf("again: %u %u %u\n", get(block[0]), get(block[1]), get(block[2]));
	for (int i = 0; i < 3; i++)
		OK(cuMemFree_v2(block[i]));
}

/* Whatever its memory was set to before. */
static void
a_new_one_has_none(void)
{
	static const size_t sizes[] = { 512, SMALL, 700 * KIB, 3 * MIB, 12 * MIB, 40 * MIB };

	case_start();
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (int round = 0; round < 4; round++) {
			CUdeviceptr block = take(sizes[i]);

			EXPECT(get(block) == 0);
			OK(set(block, 1));
			EXPECT(get(block) == 1);
			OK(cuMemFree_v2(block));
			OK(cuCtxSynchronize());
		}
}

/* A part of what was one block. */
static void
a_part_has_none(void)
{
	CUdeviceptr whole, part[4];

	case_start();
	whole = take(8 * MIB);
	OK(set(whole, 1));
	OK(cuMemFree_v2(whole));
	OK(cuCtxSynchronize());
	for (int i = 0; i < 4; i++)
		part[i] = take(2 * MIB);
	OK(set(part[2], 1));
	for (int i = 0; i < 4; i++)
		EXPECT(get(part[i]) == (i == 2));
}

static void
show_all_codes(CUdeviceptr pointer)
{
	CUpointer_attribute asked[] = { FLAG, CU_POINTER_ATTRIBUTE_RANGE_SIZE };
	unsigned one = 1, zero = 0, answer = 5;
	size_t size = 5;
	void *data[] = { &answer, &size }, *nowhere[] = { NULL, NULL };

	SHOW(cuPointerSetAttribute(&one, FLAG, pointer));
	SHOW(cuPointerSetAttribute(&zero, FLAG, pointer));
	SHOW(cuPointerSetAttribute(NULL, FLAG, pointer));
	SHOW(cuPointerSetAttribute(&one, CU_POINTER_ATTRIBUTE_BUFFER_ID, pointer));
	SHOW(cuPointerSetAttribute(&one, (CUpointer_attribute)4711, pointer));
	SHOW(cuPointerGetAttribute(&answer, FLAG, pointer));
	SHOW(cuPointerGetAttribute(NULL, FLAG, pointer));
	SHOW(cuPointerGetAttributes(2, asked, data, pointer));
	printf("%u %zu\n", answer, size);
	SHOW(cuPointerGetAttributes(2, asked, nowhere, pointer));
	SHOW(cuPointerGetAttributes(0, asked, data, pointer));
	SHOW(cuPointerGetAttributes(2, NULL, data, pointer));
	SHOW(cuPointerGetAttributes(2, asked, NULL, pointer));
	printf("%u %zu\n", answer, size);
}

static void
codes(void)
{
	CUdeviceptr block, neighbour, freed;
	void *host;
	int local = 0;

	show_all_codes(4096);
	case_start();
	block = take(SMALL);
	neighbour = take(SMALL);
	freed = take(SMALL);
	OK(set(neighbour, 1));
	OK(cuMemFree_v2(freed));
	show_all_codes(block);
	show_all_codes(block + SMALL / 2);
	show_all_codes(freed);
	show_all_codes(0);
	show_all_codes((CUdeviceptr)(uintptr_t)&local);
	OK(cuMemHostAlloc(&host, SMALL, 0));
	show_all_codes((CUdeviceptr)(uintptr_t)host);
	OK(cuCtxSetCurrent(NULL));
	show_all_codes(block);
}

/* The driver answers in order, and stops at what it refuses. */
static void
answers_before_a_refusal(void)
{
	CUpointer_attribute asked[] = { FLAG, (CUpointer_attribute)4711, FLAG };
	unsigned first = 0x55555555, last = 0x55555555, nothing;
	void *data[] = { &first, &nothing, &last };
	CUdeviceptr block, neighbour;

	case_start();
	block = take(SMALL);
	neighbour = take(SMALL);
	OK(set(neighbour, 1));
	SHOW(cuPointerGetAttributes(3, asked, data, block));
	printf("%x %x\n", first, last);
	SHOW(cuPointerGetAttributes(3, asked, data, neighbour));
	printf("%x %x\n", first, last);
}

/* What the driver serves itself. */
static void
other_memory(void)
{
	CUdeviceptr pitched, managed, ordered;
	size_t pitch;

	case_start();
	OK(cuMemAllocPitch_v2(&pitched, &pitch, 1000, 10, 4));
	OK(cuMemAllocManaged(&managed, SMALL, 1));
	OK(cuMemAllocAsync(&ordered, SMALL, NULL));
	printf("%u %u %u\n", get(pitched), get(managed), get(ordered));
	SHOW(set(pitched, 1));
	SHOW(set(managed + 5, 1));
	SHOW(set(ordered, 1));
	printf("%u %u %u\n", get(pitched), get(managed), get(ordered));
	SHOW(set(pitched, 0));
	printf("%u %u %u\n", get(pitched), get(managed), get(ordered));
	OK(cuMemFree_v2(pitched));
	OK(cuMemFree_v2(managed));
	OK(cuMemFreeAsync(ordered, NULL));
}

static void
in_two_contexts(void)
{
	CUcontext primary = case_start();
	CUdeviceptr here = take(SMALL), beside = take(SMALL), there;

	case_context(0);
	there = take(SMALL);
	OK(set(here, 1)); /* of another context than the current one */
	printf("%u %u %u\n", get(here), get(beside), get(there));
	OK(set(there, 1));
	OK(cuMemFree_v2(here));
	OK(cuCtxSetCurrent(primary));
	here = take(SMALL);
	printf("%u %u %u\n", get(here), get(beside), get(there));
}

typedef CUresult set_call(const void *value, CUpointer_attribute attribute, CUdeviceptr ptr);
typedef CUresult get_call(void *data, CUpointer_attribute attribute, CUdeviceptr ptr);
typedef CUresult gets_call(unsigned n, CUpointer_attribute *attributes, void **data,
			   CUdeviceptr ptr);

static void *
by_dlsym(const char *name)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW), *found;

	EXPECT(driver);
	found = dlsym(driver, name);
	EXPECT(found);
	return found;
}

static void *
by_old_getproc(const char *name)
{
	void *found;

	OK(cuGetProcAddress(name, &found, 12000, 0));
	return found;
}

static void *
by_getproc(const char *name)
{
	CUdriverProcAddressQueryResult status;
	void *found;

	OK(cuGetProcAddress_v2(name, &found, 12000, 2, &status));
	return found;
}

static void
by(void *(*find)(const char *name))
{
	CUdeviceptr block = take(SMALL), neighbour = take(SMALL);
	CUpointer_attribute asked = FLAG;
	unsigned one = 1, alone = 7, among = 7;
	void *data = &among;
	set_call *set_it;
	get_call *get_it;
	gets_call *gets_it;

	*(void **)&set_it = find("cuPointerSetAttribute");
	*(void **)&get_it = find("cuPointerGetAttribute");
	*(void **)&gets_it = find("cuPointerGetAttributes");
	OK(set_it(&one, FLAG, block));
	OK(get_it(&alone, FLAG, block));
	OK(gets_it(1, &asked, &data, block));
	printf("%u %u, ", alone, among);
	OK(get_it(&alone, FLAG, neighbour));
	OK(gets_it(1, &asked, &data, neighbour));
	printf("%u %u\n", alone, among);
}

static void
by_every_road(void)
{
	case_start();
	by(by_dlsym);
	by(by_old_getproc);
	by(by_getproc);
}

static CUdeviceptr live[LIVE];

static void
ten_thousand_live(void)
{
	case_start();
	for (int i = 0; i < LIVE; i++) {
		live[i] = take(SMALL);
		OK(set(live[i], 1));
	}
	for (int i = 0; i < LIVE; i++)
		EXPECT(get(live[i]) == 1);
	for (int i = 0; i < LIVE; i++)
		OK(cuMemFree_v2(live[i]));
}

/* Every other one, so that there are more ranges than are kept apart. */
static void
every_other_one(void)
{
	case_start();
	for (int i = 0; i < LIVE; i++) {
		live[i] = take(SMALL);
		if (i % 2)
			OK(set(live[i], 1));
	}
	for (int i = 0; i < LIVE; i++)
		EXPECT(get(live[i]) == (unsigned)i % 2);
	for (int i = 0; i < LIVE; i += 2)
		OK(set(live[i], 1));
	for (int i = 1; i < LIVE; i += 2)
		OK(set(live[i], 0));
	for (int i = 0; i < LIVE; i++)
		EXPECT(get(live[i]) == (unsigned)(i + 1) % 2);
}

/* Taken, shown, freed, again and again, with work on it that is waited for. */
static void
again_and_again(void)
{
	CUstream stream;

	case_start();
	OK(cuStreamCreate(&stream, 1));
	for (int i = 0; i < LIVE; i++) {
		size_t bytes = i % 3 ? SMALL : (size_t)MIB;
		CUdeviceptr block = take(bytes);

		EXPECT(get(block) == 0);
		OK(set(block, 1));
		case_fill(block, SMALL / 4, (uint64_t)i, 0, stream);
		OK(cuStreamSynchronize(stream));
		EXPECT(get(block) == 1);
		OK(cuMemFree_v2(block));
	}
}

static _Atomic unsigned wrong;

static void *
sets_and_gets(void *context)
{
	OK(cuCtxSetCurrent(context));
	for (unsigned i = 0; i < ROUNDS; i++) {
		CUdeviceptr mine[3];
		unsigned at = i % 3;

		for (unsigned n = 0; n < 3; n++)
			mine[n] = take((n + 1) * SMALL);
		OK(set(mine[at], 1));
		for (unsigned n = 0; n < 3; n++)
			wrong += get(mine[n]) != (n == at);
		OK(set(mine[at], i & 1));
		for (unsigned n = 0; n < 3; n++)
			wrong += get(mine[n]) != (n == at && i & 1);
		for (unsigned n = 0; n < 3; n++)
			OK(cuMemFree_v2(mine[n]));
	}
	return NULL;
}

/* Neighbours of one segment, each in its own thread. */
static void
threads_side_by_side(void)
{
	CUcontext context = case_start();
	pthread_t thread[THREADS];

	for (int i = 0; i < THREADS; i++)
		EXPECT(pthread_create(&thread[i], NULL, sets_and_gets, context) == 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	printf("wrong: %u\n", wrong);
}

const struct test_case test_cases[] = {
	{ "each_has_its_own", each_has_its_own },
	{ "a_new_one_has_none", a_new_one_has_none },
	{ "a_part_has_none", a_part_has_none },
	{ "codes", codes },
	{ "answers_before_a_refusal", answers_before_a_refusal },
	{ "other_memory", other_memory },
	{ "in_two_contexts", in_two_contexts },
	{ "by_every_road", by_every_road },
	{ "ten_thousand_live", ten_thousand_live },
	{ "every_other_one", every_other_one },
	{ "again_and_again", again_and_again },
	{ "threads_side_by_side", threads_side_by_side },
	{ NULL, NULL },
};
