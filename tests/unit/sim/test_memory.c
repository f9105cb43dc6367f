/* SPDX-License-Identifier: MIT */
#include "tests/unit/sim/fixture.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static size_t
free_bytes(void)
{
	size_t n_free, n_total;

	assert_int_equal(sim_mem_get_info(&n_free, &n_total), 0);
	assert_int_equal(n_total, 64 * MIB);
	return n_free;
}

static void
test_capacity_counts_units(void **state)
{
	CUdeviceptr a, b, c;

	assert_int_equal(free_bytes(), 64 * MIB);
	a = must_alloc(1);
	assert_int_equal(free_bytes(), 62 * MIB);
	b = must_alloc(MIB);
	assert_int_equal(free_bytes(), 62 * MIB);
	c = must_alloc(2 * MIB + 1);
	assert_int_equal(free_bytes(), 58 * MIB);
	assert_int_equal(c % (2 * MIB), 0);
	assert_int_equal(a % 512, 0);
	assert_int_equal(b % 512, 0);
	assert_int_equal(sim_mem_free(a), 0);
	assert_int_equal(free_bytes(), 58 * MIB);
	assert_int_equal(sim_mem_free(b), 0);
	assert_int_equal(sim_mem_free(c), 0);
	assert_int_equal(free_bytes(), 64 * MIB);
	assert_int_equal(sim_peak_bytes(0), 6 * MIB);
}

static void
test_full_and_too_large(void **state)
{
	CUdeviceptr at[32], ptr = 7;

	for (int i = 0; i < 32; i++)
		at[i] = must_alloc(2 * MIB);
	assert_int_equal(sim_mem_alloc(1, &ptr), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(sim_mem_free(at[7]), 0);
	assert_int_equal(sim_mem_alloc(2 * MIB + 1, &ptr), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(ptr, 7);
	at[7] = must_alloc(1);
	assert_int_equal(sim_mem_alloc((size_t)1 << 62, &ptr), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(sim_mem_alloc(SIZE_MAX, &ptr), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(sim_mem_alloc(0, &ptr), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(fx.n_misuse, 0);
}

/* Goes round the address range many times. */
static void
test_addresses_come_back_late(void **state)
{
	CUdeviceptr first = must_alloc(32 * MIB), ptr = first;
	unsigned n_before_repeat = 0;

	for (int i = 0; i < 200; i++) {
		assert_int_equal(sim_mem_free(ptr), 0);
		ptr = must_alloc(32 * MIB);
		if (ptr == first)
			break;
		n_before_repeat++;
	}
	assert_in_range(n_before_repeat, 20, 40);
}

static void
test_small_addresses_come_back_late(void **state)
{
	CUdeviceptr keep = must_alloc(512), first = must_alloc(512), ptr;

	assert_int_equal(sim_mem_free(first), 0);
	for (int i = 0; i < 1000; i++) {
		ptr = must_alloc(512);
		assert_true(ptr != first && ptr != keep);
		assert_int_equal(sim_mem_free(ptr), 0);
	}
}

static void
test_bad_frees(void **state)
{
	CUdeviceptr large = must_alloc(4 * MIB), small = must_alloc(1000), again = must_alloc(1000);
	int local;

	assert_int_equal(sim_mem_free(0), 0);
	assert_int_equal(fx.n_misuse, 0);
	assert_int_equal(sim_mem_free(large + 4), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_mem_free(large + 2 * MIB), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_mem_free(small + 512), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_mem_free((uintptr_t)&local), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_mem_free(12345), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_mem_free(small), 0);
	assert_int_equal(sim_mem_free(small), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_mem_free(large), 0);
	assert_int_equal(sim_mem_free(large), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(fx.n_misuse, 7);
	assert_int_equal(fx.misuse, CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_mem_free(again), 0);
}

static void
test_lookup_tells_requested_range(void **state)
{
	CUdeviceptr a = must_alloc(1000), b = must_alloc(3 * MIB);
	struct sim_mem_info ia, ib;

	assert_int_equal(sim_mem_lookup(a + 999, &ia), 0);
	assert_int_equal(ia.base, a);
	assert_int_equal(ia.n_bytes, 1000);
	assert_int_equal(ia.kind, SIM_MEM_DEVICE);
	assert_ptr_equal(ia.ctx, fx.ctx);
	assert_int_equal(sim_mem_lookup(a + 1000, &ia), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_mem_lookup(b + 3 * MIB - 1, &ib), 0);
	assert_int_equal(ib.base, b);
	assert_int_equal(sim_mem_lookup(b + 3 * MIB, &ib), CUDA_ERROR_INVALID_VALUE);
	assert_int_not_equal(ia.id, ib.id);
	assert_int_equal(sim_mem_set_sync_memops(b + 5, 1), 0);
	assert_int_equal(sim_mem_lookup(b, &ib), 0);
	assert_int_equal(ib.sync_memops, 1);
	assert_int_equal(sim_mem_free(b), 0);
	assert_int_equal(sim_mem_lookup(b, &ib), CUDA_ERROR_INVALID_VALUE);
}

static void
test_pitch(void **state)
{
	struct sim_mem_info info;
	CUdeviceptr ptr;
	size_t pitch;

	assert_int_equal(sim_mem_alloc_pitch(513, 10, 4, &ptr, &pitch), 0);
	assert_int_equal(pitch, 1024);
	assert_int_equal(sim_mem_lookup(ptr, &info), 0);
	assert_int_equal(info.n_bytes, 10240);
	assert_int_equal(info.kind, SIM_MEM_PITCH);
	assert_int_equal(sim_mem_alloc_pitch(512, 1, 4, &ptr, &pitch), 0);
	assert_int_equal(pitch, 512);
	assert_int_equal(sim_mem_alloc_pitch(0, 1, 4, &ptr, &pitch), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_mem_alloc_pitch(1, 0, 4, &ptr, &pitch), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_mem_alloc_pitch(1, 1, 3, &ptr, &pitch), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_mem_alloc_pitch(SIZE_MAX / 2, 4, 4, &ptr, &pitch),
			 CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(sim_mem_alloc_pitch(SIZE_MAX, 1, 4, &ptr, &pitch),
			 CUDA_ERROR_OUT_OF_MEMORY);
}

static void
test_managed_and_host(void **state)
{
	struct sim_mem_info info;
	CUdeviceptr managed;
	uint32_t *host;

	assert_int_equal(sim_mem_alloc_managed(4096, 0, &managed), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_mem_alloc_managed(4096, 1, &managed), 0);
	assert_int_equal(sim_mem_host_alloc(4096, (void **)&host), 0);
	*(uint32_t *)(uintptr_t)managed = 5;
	host[1023] = 6;
	assert_int_equal(sim_mem_lookup(managed, &info), 0);
	assert_int_equal(info.kind, SIM_MEM_MANAGED);
	assert_int_equal(sim_mem_lookup((uintptr_t)(host + 1023), &info), 0);
	assert_int_equal(info.kind, SIM_MEM_HOST);
	assert_int_equal(info.base, (uintptr_t)host);
	assert_int_equal(sim_mem_free((uintptr_t)host), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_mem_host_free((void *)(uintptr_t)managed), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_mem_host_free(host), 0);
	assert_int_equal(sim_mem_host_free(host), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_mem_free(managed), 0);
	/* Host memory does not count against the device. */
	assert_int_equal(free_bytes(), 64 * MIB);
}

static void
test_freed_small_memory_is_poisoned(void **state)
{
	CUdeviceptr keep = must_alloc(512), ptr = must_alloc(512);

	fill(ptr, 512, 1, NULL);
	assert_int_equal(sim_ctx_sync(), 0);
	assert_int_equal(word_at(ptr), 1);
	assert_int_equal(sim_mem_free(ptr), 0);
	assert_int_equal(word_at(ptr), 0xdbdbdbdb);
	assert_int_equal(sim_mem_free(keep), 0);
}

/* In a child, since it must die. */
static void
test_freed_large_memory_faults(void **state)
{
	CUdeviceptr ptr = must_alloc(2 * MIB);
	int status;
	pid_t pid;

	fill(ptr, 512, 1, NULL);
	assert_int_equal(sim_mem_free(ptr), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		struct rlimit none = { 0, 0 };

		setrlimit(RLIMIT_CORE, &none);
		signal(SIGSEGV, SIG_DFL);
		_exit((int)word_at(ptr) & 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

static void
test_free_waits_for_prior_work_only_of_its_context(void **state)
{
	CUdeviceptr a = must_alloc(512), b, ptr = must_alloc(2 * MIB);
	CUcontext other;

	fill(a, 512, 1, NULL);
	assert_int_equal(sim_ctx_create(0, 0, &other), 0);
	b = must_alloc(512);
	fill(b, 512, 1, NULL);
	assert_int_equal(sim_pending(), 2);
	assert_int_equal(sim_mem_free(ptr), 0);
	assert_int_equal(sim_pending(), 1);
	assert_int_equal(word_at(a), 1);
	assert_int_equal(word_at(b), 0);
}

static void
test_sixteen_gib_are_lazy(void **state)
{
	CUdeviceptr ptr;

	sim_stop();
	fixture_begin(1, (uint64_t)16 << 30, SIM_CLOCK_MANUAL);
	ptr = must_alloc((size_t)16 << 30);
	fill(ptr + ((size_t)15 << 30), 4096, 9, NULL);
	assert_int_equal(sim_ctx_sync(), 0);
	assert_int_equal(word_at(ptr + ((size_t)15 << 30)), 9);
	assert_int_equal(sim_mem_free(ptr), 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, fixture_manual, fixture_end)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_capacity_counts_units),
		T(test_full_and_too_large),
		T(test_addresses_come_back_late),
		T(test_small_addresses_come_back_late),
		T(test_bad_frees),
		T(test_lookup_tells_requested_range),
		T(test_pitch),
		T(test_managed_and_host),
		T(test_freed_small_memory_is_poisoned),
		T(test_freed_large_memory_faults),
		T(test_free_waits_for_prior_work_only_of_its_context),
		T(test_sixteen_gib_are_lazy),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
