/* SPDX-License-Identifier: MIT */
/* Virtual memory management: memory, addresses, access; what the oracle knows of two mappings. */
#include "tests/unit/sim/fixture.h"

#include "tests/sim/engine_vmm.h"
#include <unistd.h>

#define GRAIN ((uint64_t)SIM_VMM_GRANULARITY)

enum { READ = 1, ALL = 3 };

static CUstream s, t;
static CUdeviceptr range; /* 8 granules, nothing mapped */

static void
begin_with(int n_devices, enum sim_clock clock)
{
	fixture_begin(n_devices, 64 * MIB, clock);
	s = must_stream(SIM_STREAM_NON_BLOCKING);
	t = must_stream(SIM_STREAM_NON_BLOCKING);
	assert_int_equal(sim_range_reserve(8 * GRAIN, 0, 0, &range), 0);
}

static int
begin_manual(void **state)
{
	begin_with(1, SIM_CLOCK_MANUAL);
	return 0;
}

static int
begin_real(void **state)
{
	begin_with(1, SIM_CLOCK_REAL);
	return 0;
}

static int
begin_two(void **state)
{
	begin_with(2, SIM_CLOCK_MANUAL);
	return 0;
}

static sim_phys_handle
must_create(unsigned granules)
{
	struct sim_phys_info info = { .device = 0, .n_bytes = granules * GRAIN, .handle_types = 1 };
	sim_phys_handle handle = 0;

	assert_int_equal(sim_phys_create(&info, &handle), 0);
	assert_true(handle != 0);
	return handle;
}

/* The n-th granule of the range. */
static CUdeviceptr
at(unsigned n)
{
	return range + n * GRAIN;
}

static void
map_at(unsigned n, unsigned granules, sim_phys_handle handle)
{
	assert_int_equal(sim_range_map(at(n), granules * GRAIN, 0, handle), 0);
	assert_int_equal(sim_range_set_access(at(n), granules * GRAIN, 0, ALL), 0);
}

static void
unmap_at(unsigned n, unsigned granules)
{
	assert_int_equal(sim_range_unmap(at(n), granules * GRAIN), 0);
}

/* Two mappings of one granule of memory, at 0 and at 4. */
static void
map_twice(void)
{
	sim_phys_handle handle = must_create(1);

	map_at(0, 1, handle);
	map_at(4, 1, handle);
	assert_int_equal(sim_phys_release(handle), 0);
}

static void
order(CUstream before, CUstream after)
{
	CUevent event = must_event();

	assert_int_equal(sim_event_record(event, before), 0);
	assert_int_equal(sim_stream_wait_event(after, event, 0), 0);
}

/* ---------------------------------------------------------------- memory --- */
static void
test_counts_until_unmapped_and_released(void **state)
{
	uint64_t before = sim_used_bytes(0);
	sim_phys_handle handle = must_create(2), again;

	assert_int_equal(sim_used_bytes(0), before + 2 * GRAIN);
	map_at(0, 2, handle);
	assert_int_equal(sim_phys_release(handle), 0);
	assert_int_equal(sim_phys_release(handle), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_used_bytes(0), before + 2 * GRAIN);
	assert_int_equal(sim_phys_retain(at(1) + 5, &again), 0);
	assert_true(again == handle);
	unmap_at(0, 2);
	assert_int_equal(sim_used_bytes(0), before + 2 * GRAIN);
	assert_int_equal(sim_phys_release(again), 0);
	assert_int_equal(sim_used_bytes(0), before);
	assert_int_equal(sim_peak_bytes(0), before + 2 * GRAIN);
}

/* One capacity for all memory of the device. */
static void
test_capacity(void **state)
{
	struct sim_phys_info info = { .device = 0, .n_bytes = 40 * MIB };
	sim_phys_handle handle;
	CUdeviceptr ptr;

	assert_int_equal(sim_mem_alloc(30 * MIB, &ptr), 0);
	assert_int_equal(sim_phys_create(&info, &handle), CUDA_ERROR_OUT_OF_MEMORY);
	info.n_bytes = 30 * MIB;
	assert_int_equal(sim_phys_create(&info, &handle), 0);
	assert_int_equal(sim_mem_alloc(8 * MIB, &ptr), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(sim_phys_release(handle), 0);
	assert_int_equal(sim_mem_alloc(8 * MIB, &ptr), 0);
}

static void
test_sizes_and_devices(void **state)
{
	struct sim_phys_info info = { .device = 0, .n_bytes = GRAIN + 4096 };
	sim_phys_handle handle;

	assert_int_equal(sim_phys_create(&info, &handle), CUDA_ERROR_INVALID_VALUE);
	info.n_bytes = 0;
	assert_int_equal(sim_phys_create(&info, &handle), CUDA_ERROR_INVALID_VALUE);
	info = (struct sim_phys_info){ .device = 1, .n_bytes = GRAIN };
	assert_int_equal(sim_phys_create(&info, &handle), CUDA_ERROR_INVALID_DEVICE);
}

/* Work goes across mappings that follow each other; it stops at a gap. */
static void
test_across_mappings(void **state)
{
	uint32_t seen[2] = { 0 };
	CUdeviceptr edge = at(1) - 4;

	map_at(0, 1, must_create(1));
	map_at(1, 2, must_create(2));
	fill(at(0), 3 * GRAIN, 7, s);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(sim_copy((uintptr_t)seen, edge, 8, SIM_COPY_DTOH, NULL, true), 0);
	assert_true(seen[0] == 7 && seen[1] == 7);
	assert_int_equal(sim_set(at(2), 1, 1, GRAIN + 1, NULL, false), CUDA_ERROR_INVALID_VALUE);
	fill(at(2), 2 * GRAIN, 7, s);
	assert_int_equal(sim_stream_sync(s), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void
test_mapping_needs_room(void **state)
{
	sim_phys_handle handle = must_create(2);

	assert_int_equal(sim_range_map(at(0), GRAIN, GRAIN, handle), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_range_map(at(0) + 4096, GRAIN, 0, handle), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_range_map(at(0), 3 * GRAIN, 0, handle), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_range_map(at(7), 2 * GRAIN, 0, handle), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_range_map(at(0), GRAIN, 0, 12345), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_range_map(at(1), 2 * GRAIN, 0, handle), 0);
	assert_int_equal(sim_range_map(at(0), 2 * GRAIN, 0, handle), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_range_unmap(at(1), GRAIN), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_range_unmap(at(2), GRAIN), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_range_free(range, 8 * GRAIN), CUDA_ERROR_INVALID_VALUE);
	unmap_at(1, 2);
	assert_int_equal(sim_range_unmap(at(1), 2 * GRAIN), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_range_free(range, 4 * GRAIN), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_range_free(range, 8 * GRAIN), 0);
	assert_int_equal(sim_range_map(at(0), GRAIN, 0, handle), CUDA_ERROR_INVALID_VALUE);
}

/* Whole mappings without a gap go in one call. */
static void
test_unmaps_several(void **state)
{
	map_at(0, 1, must_create(1));
	map_at(1, 2, must_create(2));
	map_at(4, 1, must_create(1));
	assert_int_equal(sim_range_unmap(at(0), 5 * GRAIN), CUDA_ERROR_INVALID_VALUE);
	unmap_at(0, 3);
	unmap_at(4, 1);
	assert_int_equal(sim_range_free(range, 8 * GRAIN), 0);
}

static void
test_reservation(void **state)
{
	CUdeviceptr ptr, wanted;

	assert_int_equal(sim_range_reserve(4097, 0, 0, &ptr), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_range_reserve(0, 0, 0, &ptr), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_range_reserve(4096, 3, 0, &ptr), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_range_reserve(GRAIN, 16 * MIB, 0, &wanted), 0);
	assert_int_equal(wanted % (16 * MIB), 0);
	assert_int_equal(sim_range_free(wanted, GRAIN), 0);
	assert_int_equal(sim_range_reserve(GRAIN, 0, wanted, &ptr), 0);
	assert_true(ptr == wanted);
	assert_int_equal(sim_range_reserve(GRAIN, 0, wanted, &ptr), 0);
	assert_true(ptr != wanted && ptr % GRAIN == 0);
	assert_int_equal(sim_range_reserve((uint64_t)1 << 60, 0, 0, &ptr),
			 CUDA_ERROR_OUT_OF_MEMORY);
}

/* It belongs to no context. */
static void
test_outlives_contexts(void **state)
{
	CUcontext ctx;

	map_at(0, 1, must_create(1));
	assert_int_equal(sim_ctx_create(0, 0, &ctx), 0);
	map_at(1, 1, must_create(1));
	assert_int_equal(sim_set(at(1), 9, 4, 4, NULL, false), 0);
	assert_int_equal(sim_ctx_destroy(ctx), 0);
	assert_int_equal(word_at(at(1)), 9);
	assert_int_equal(sim_primary_reset(0), 0);
	assert_int_equal(word_at(at(1)), 9);
	unmap_at(0, 2);
}

static void
test_frees_are_refused(void **state)
{
	map_at(0, 1, must_create(1));
	assert_int_equal(sim_mem_free(at(0)), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_mem_free_async(at(0), s), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_mem_host_free((void *)(uintptr_t)at(0)), CUDA_ERROR_INVALID_VALUE);
}

static void
test_capture_prohibits(void **state)
{
	struct sim_phys_info info = { .device = 0, .n_bytes = GRAIN };
	const int prohibited = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	sim_phys_handle handle = must_create(1);

	map_at(0, 1, handle);
	assert_int_equal(sim_capture_begin(s, CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
	assert_int_equal(sim_phys_create(&info, &handle), prohibited);
	assert_int_equal(sim_range_map(at(1), GRAIN, 0, handle), prohibited);
	assert_int_equal(sim_range_set_access(at(0), GRAIN, 0, READ), prohibited);
	assert_int_equal(sim_range_unmap(at(0), GRAIN), prohibited);
}

/* ---------------------------------------------------------------- access --- */
static void
test_no_access_to_begin_with(void **state)
{
	unsigned flags = 9;

	assert_int_equal(sim_range_map(at(0), GRAIN, 0, must_create(1)), 0);
	assert_int_equal(sim_range_get_access(at(0), 0, &flags), 0);
	assert_int_equal(flags, 0);
	assert_int_equal(sim_range_get_access(at(1), 0, &flags), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_set(at(0), 1, 4, 4, NULL, false), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_range_set_access(at(0), GRAIN, 0, 2), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_range_set_access(at(0), GRAIN, 7, ALL), CUDA_ERROR_INVALID_DEVICE);
	assert_int_equal(sim_range_set_access(at(0), 2 * GRAIN, 0, ALL), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_range_set_access(at(0), GRAIN, 0, ALL), 0);
	assert_int_equal(sim_set(at(0), 1, 4, 4, NULL, false), 0);
	unmap_at(0, 1);
	assert_int_equal(sim_range_map(at(0), GRAIN, 0, must_create(1)), 0);
	assert_int_equal(sim_range_get_access(at(0), 0, &flags), 0);
	assert_int_equal(flags, 0);
}

static void
test_read_only(void **state)
{
	CUdeviceptr errors = must_alloc(8);

	map_at(0, 1, must_create(1));
	fill(at(0), 4096, 3, s);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(sim_range_set_access(at(0), GRAIN, 0, READ), 0);
	check(at(0), 4096, 3, errors, s);
	assert_int_equal(sim_stream_sync(s), 0);
	fill(at(0), 4096, 4, s);
	assert_int_equal(sim_stream_sync(s), CUDA_ERROR_ILLEGAL_ADDRESS);
}

/* Enabling peer access grants nothing here; the mapping's own list does. */
static void
test_access_of_a_peer(void **state)
{
	CUcontext peer;
	CUstream theirs;

	map_at(0, 1, must_create(1));
	assert_int_equal(sim_primary_retain(1, &peer), 0);
	assert_int_equal(sim_ctx_push(peer), 0);
	assert_int_equal(sim_ctx_enable_peer(fx.ctx), 0);
	theirs = must_stream(SIM_STREAM_NON_BLOCKING);
	assert_int_equal(sim_range_set_access(at(0), GRAIN, 1, ALL), 0);
	fill(at(0), 4096, 5, theirs);
	assert_int_equal(sim_stream_sync(theirs), 0);
	assert_int_equal(word_at(at(0)), 5);
	assert_int_equal(sim_range_set_access(at(0), GRAIN, 1, 0), 0);
	assert_int_equal(sim_set(at(0), 6, 4, 4, theirs, false), 0); /* staged */
	assert_int_equal(sim_stream_sync(theirs), 0);
	fill(at(0), 4096, 7, theirs);
	assert_int_equal(sim_stream_sync(theirs), CUDA_ERROR_ILLEGAL_ADDRESS);
	assert_int_equal(fx.n_races, 0);
}

/* ------------------------------------------------------------ two mappings --- */
static void
test_same_bytes(void **state)
{
	map_twice();
	fill(at(0), GRAIN, 11, s);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(word_at(at(4) + GRAIN - 4), 11);
	unmap_at(0, 1);
	assert_int_equal(word_at(at(4)), 11);
}

static void
test_unordered_through_two_mappings(void **state)
{
	map_twice();
	fill(at(0) + 4096, 4096, 1, s);
	fill(at(4), 4096, 2, t); /* other bytes */
	assert_int_equal(fx.n_races, 0);
	fill(at(4) + 8188, 4, 2, t);
	assert_int_equal(fx.n_races, 1);
	assert_int_equal(fx.race.n_bytes, 4);
}

static void
test_ordered_through_two_mappings(void **state)
{
	map_twice();
	fill(at(0), GRAIN, 1, s);
	order(s, t);
	fill(at(4), GRAIN, 2, t);
	fill(at(0), GRAIN, 3, t);
	assert_int_equal(sim_ctx_sync(), 0);
	assert_int_equal(word_at(at(4)), 3);
	assert_int_equal(fx.n_races, 0);
}

/* New memory at an old address is not the old memory; old memory at a new address is. */
static void
test_moved(void **state)
{
	sim_phys_handle old = must_create(1), new = must_create(1);

	map_at(0, 1, old);
	fill(at(0), GRAIN, 1, s);
	assert_int_equal(sim_stream_sync(s), 0);
	unmap_at(0, 1);
	map_at(0, 1, new);
	map_at(4, 1, old);
	fill(at(0), GRAIN, 2, s);
	fill(at(4), GRAIN, 3, t);
	assert_int_equal(fx.n_races, 0);
	assert_int_equal(sim_ctx_sync(), 0);
	assert_int_equal(word_at(at(0)), 2);
	assert_int_equal(word_at(at(4)), 3);
}

/* ------------------------------------------------------------------- ends --- */
static void
test_unmap_under_use(void **state)
{
	map_at(0, 2, must_create(2));
	fill(at(1), 4096, 1, s);
	assert_int_equal(fx.n_races, 0);
	unmap_at(0, 2);
	assert_int_equal(fx.n_races, 1);
	assert_string_equal(fx.race.now.name, "cuMemUnmap");
	assert_string_equal(fx.race.before.name, "sim_fill");
	assert_int_equal(sim_stream_sync(s), CUDA_ERROR_ILLEGAL_ADDRESS);
}

/* A read is a use, too. */
static void
test_unmap_under_a_reader(void **state)
{
	CUdeviceptr errors = must_alloc(8);

	map_at(0, 1, must_create(1));
	check(at(0), 4096, 0, errors, s);
	unmap_at(0, 1);
	assert_int_equal(fx.n_races, 1);
}

static void
test_unmap_after_use(void **state)
{
	CUevent event = must_event();

	map_at(0, 1, must_create(1));
	fill(at(0), 4096, 1, s);
	assert_int_equal(sim_event_record(event, s), 0);
	assert_int_equal(sim_step(100), 2);
	assert_int_equal(sim_event_query(event), 0);
	unmap_at(0, 1);
	assert_int_equal(fx.n_races, 0);
}

/* Nobody has asked whether it has ended, though it has. */
static void
test_unmap_after_use_unknown(void **state)
{
	map_at(0, 1, must_create(1));
	fill(at(0), 4096, 1, s);
	assert_int_equal(sim_step(100), 1);
	unmap_at(0, 1);
	assert_int_equal(fx.n_races, 1);
}

/* The old place may go when its own users are done, whoever uses the new one. */
static void
test_unmap_the_old_place(void **state)
{
	map_twice();
	fill(at(0), GRAIN, 1, s);
	assert_int_equal(sim_stream_sync(s), 0);
	fill(at(4), GRAIN, 2, t);
	unmap_at(0, 1);
	assert_int_equal(fx.n_races, 0);
	assert_int_equal(sim_stream_sync(t), 0);
	assert_int_equal(word_at(at(4)), 2);
	fill(at(4), GRAIN, 3, t);
	unmap_at(4, 1);
	assert_int_equal(fx.n_races, 1);
}

static void
test_taking_access_under_use(void **state)
{
	map_at(0, 1, must_create(1));
	fill(at(0), 4096, 1, s);
	assert_int_equal(sim_range_set_access(at(0), GRAIN, 0, ALL), 0);
	assert_int_equal(fx.n_races, 0);
	assert_int_equal(sim_range_set_access(at(0), GRAIN, 0, READ), 0);
	assert_int_equal(fx.n_races, 1);
	assert_string_equal(fx.race.now.name, "cuMemSetAccess");
}

/* A captured kernel is a use when it is launched. */
static void
test_unmap_under_a_graph(void **state)
{
	struct sim_exec *exec;
	CUgraph graph;

	map_at(0, 1, must_create(1));
	assert_int_equal(sim_capture_begin(s, CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
	fill(at(0), 4096, 1, s);
	assert_int_equal(sim_capture_end(s, &graph), 0);
	assert_int_equal(sim_graph_instantiate(graph, &exec), 0);
	assert_int_equal(sim_exec_launch(exec, s), 0);
	unmap_at(0, 1);
	assert_int_equal(fx.n_races, 1);
}

/* ------------------------------------------------------ programmatic launches --- */
static void
launch_early(enum sim_kernel kernel, CUdeviceptr ptr, uint64_t x, uint64_t y, CUdeviceptr z)
{
	uint64_t args[] = { ptr, x, y, z, 0 };

	assert_int_equal(sim_kernel_launch_programmatic(kernel, args, s, true, NULL), 0);
}

/* It was on the device before the write through the other mapping had ended. */
static void
test_resident_early_reads_stale(void **state)
{
	CUdeviceptr errors = must_alloc(8), out = must_alloc(4096);

	map_twice();
	fill(at(0), 4096, 1, s);
	assert_int_equal(sim_set(errors, 0, 4, 2, s, false), 0);
	assert_int_equal(sim_stream_sync(s), 0);
	fill(at(0), 4096, 2, s);
	launch_early(SIM_KERNEL_CHECK, at(4), 1024, 1, errors);
	assert_int_equal(fx.n_races, 1);
	launch_early(SIM_KERNEL_COPY, out, at(4), 1024, 0);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(word_at(errors), 0);
	assert_int_equal(word_at(out), 1);
	assert_int_equal(word_at(at(4)), 2);
}

static void
test_without_the_attribute_it_does_not(void **state)
{
	CUdeviceptr out = must_alloc(4096);

	map_twice();
	fill(at(0), 4096, 1, s);
	assert_int_equal(sim_stream_sync(s), 0);
	fill(at(0), 4096, 2, s);
	copy_words(out, at(4), 4096, s);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(word_at(out), 2);
	assert_int_equal(fx.n_races, 0);
}

/* ----------------------------------------------------------------- shares --- */
static void
test_export_import(void **state)
{
	struct sim_phys_info info = { .device = 0, .n_bytes = GRAIN };
	sim_phys_handle handle = must_create(1), other, again;
	int fd = -1;

	assert_int_equal(sim_phys_create(&info, &other), 0);
	assert_int_equal(sim_phys_export(other, &fd), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_phys_export(handle, &fd), 0);
	assert_int_equal(sim_phys_import(fd, &again), 0);
	map_at(0, 1, handle);
	map_at(4, 1, again);
	assert_int_equal(sim_phys_release(handle), 0);
	assert_int_equal(sim_phys_release(again), 0);
	fill(at(0), 4096, 8, s);
	fill(at(4), 4096, 9, t);
	assert_int_equal(fx.n_races, 1);
	assert_int_equal(sim_ctx_sync(), 0);
	unmap_at(0, 1);
	unmap_at(4, 1);
	assert_int_equal(sim_phys_import(fd, &again), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_phys_import(-1, &again), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(close(fd), 0);
}

/* With a thread that works beside. */
static void
test_unmap_in_real_time(void **state)
{
	for (int i = 0; i < 20; i++) {
		sim_phys_handle handle = must_create(4);

		map_at(0, 4, handle);
		assert_int_equal(sim_phys_release(handle), 0);
		fill(at(0), 4 * GRAIN, (uint32_t)i, s);
		assert_int_equal(sim_stream_sync(s), 0);
		unmap_at(0, 4);
	}
	assert_int_equal(fx.n_races, 0);
}

#define MANUAL(name) cmocka_unit_test_setup_teardown(name, begin_manual, fixture_end)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		MANUAL(test_counts_until_unmapped_and_released),
		MANUAL(test_capacity),
		MANUAL(test_sizes_and_devices),
		MANUAL(test_across_mappings),
		MANUAL(test_mapping_needs_room),
		MANUAL(test_unmaps_several),
		MANUAL(test_reservation),
		MANUAL(test_outlives_contexts),
		MANUAL(test_frees_are_refused),
		MANUAL(test_capture_prohibits),
		MANUAL(test_no_access_to_begin_with),
		MANUAL(test_read_only),
		cmocka_unit_test_setup_teardown(test_access_of_a_peer, begin_two, fixture_end),
		MANUAL(test_same_bytes),
		MANUAL(test_unordered_through_two_mappings),
		MANUAL(test_ordered_through_two_mappings),
		MANUAL(test_moved),
		MANUAL(test_unmap_under_use),
		MANUAL(test_unmap_under_a_reader),
		MANUAL(test_unmap_after_use),
		MANUAL(test_unmap_after_use_unknown),
		MANUAL(test_unmap_the_old_place),
		MANUAL(test_taking_access_under_use),
		MANUAL(test_unmap_under_a_graph),
		MANUAL(test_resident_early_reads_stale),
		MANUAL(test_without_the_attribute_it_does_not),
		MANUAL(test_export_import),
		cmocka_unit_test_setup_teardown(test_unmap_in_real_time, begin_real, fixture_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
