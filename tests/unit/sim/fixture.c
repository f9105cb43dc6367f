/* SPDX-License-Identifier: MIT */
#include "tests/unit/sim/fixture.h"

struct fixture fx;

static void
on_race(void *arg, const struct sim_race *race)
{
	fx.n_races++;
	fx.race = *race;
}

static void
on_misuse(void *arg, int code, const char *what)
{
	assert_non_null(what);
	fx.n_misuse++;
	fx.misuse = code;
}

void
fixture_begin(int n_devices, uint64_t mem_bytes, enum sim_clock clock)
{
	fixture_begin_config((struct sim_config){
		.n_devices = n_devices, .mem_bytes = mem_bytes, .clock = clock });
}

void
fixture_begin_config(struct sim_config config)
{
	config.races = SIM_RACES_REPORT;
	config.on_misuse = on_misuse;
	config.on_race = on_race;
	memset(&fx, 0, sizeof(fx));
	assert_int_equal(sim_start(&config), 0);
	assert_int_equal(sim_primary_retain(0, &fx.ctx), 0);
	assert_int_equal(sim_ctx_set_current(fx.ctx), 0);
}

int
fixture_manual(void **state)
{
	fixture_begin(1, 64 * MIB, SIM_CLOCK_MANUAL);
	return 0;
}

int
fixture_real(void **state)
{
	fixture_begin(1, 64 * MIB, SIM_CLOCK_REAL);
	return 0;
}

int
fixture_two(void **state)
{
	fixture_begin(2, 64 * MIB, SIM_CLOCK_MANUAL);
	return 0;
}

int
fixture_end(void **state)
{
	sim_stop();
	return 0;
}

CUdeviceptr
must_alloc(size_t n_bytes)
{
	CUdeviceptr ptr = 0;

	assert_int_equal(sim_mem_alloc(n_bytes, &ptr), 0);
	assert_true(ptr != 0);
	return ptr;
}

CUstream
must_stream(unsigned flags)
{
	CUstream stream = NULL;

	assert_int_equal(sim_stream_create(flags, 0, &stream), 0);
	return stream;
}

CUevent
must_event(void)
{
	CUevent event = NULL;

	assert_int_equal(sim_event_create(0, &event), 0);
	return event;
}

void
fill_spin(CUdeviceptr ptr, size_t n_bytes, uint32_t value, uint64_t spin_us, CUstream stream)
{
	uint64_t args[] = { ptr, n_bytes / 4, value, spin_us };

	assert_int_equal(sim_kernel_launch(SIM_KERNEL_FILL, args, stream), 0);
}

void
fill(CUdeviceptr ptr, size_t n_bytes, uint32_t value, CUstream stream)
{
	fill_spin(ptr, n_bytes, value, 0, stream);
}

void
check(CUdeviceptr ptr, size_t n_bytes, uint32_t value, CUdeviceptr errors, CUstream stream)
{
	uint64_t args[] = { ptr, n_bytes / 4, value, errors, 0 };

	assert_int_equal(sim_kernel_launch(SIM_KERNEL_CHECK, args, stream), 0);
}

void
copy_words(CUdeviceptr dst, CUdeviceptr src, size_t n_bytes, CUstream stream)
{
	uint64_t args[] = { dst, src, n_bytes / 4, 0 };

	assert_int_equal(sim_kernel_launch(SIM_KERNEL_COPY, args, stream), 0);
}

uint32_t
word_at(CUdeviceptr ptr)
{
	return *(volatile uint32_t *)(uintptr_t)ptr;
}

void
set_word(CUdeviceptr ptr, uint32_t value)
{
	__atomic_store_n((uint32_t *)(uintptr_t)ptr, value, __ATOMIC_RELEASE);
}
