/* SPDX-License-Identifier: MIT */
/*
 * The built-in kernels. What they touch follows from their arguments, so the race oracle knows it
 * at the launch; whether it is allocated is asked when they run, as on a device.
 */
#include "tests/sim/engine/internal.h"

#include <errno.h>
#include <string.h>

static const struct {
	const char *name;
	enum sim_work_kind work;
	unsigned n_args;
} kernels[SIM_KERNEL_COUNT] = {
	[SIM_KERNEL_FILL] = { "sim_fill", SIM_WORK_FILL, 4 },
	[SIM_KERNEL_CHECK] = { "sim_check", SIM_WORK_CHECK, 5 },
	[SIM_KERNEL_COPY] = { "sim_copy", SIM_WORK_COPY, 4 },
	[SIM_KERNEL_WAIT] = { "sim_wait", SIM_WORK_AWAIT, 2 },
	[SIM_KERNEL_SIGNAL] = { "sim_signal", SIM_WORK_SIGNAL, 2 },
	[SIM_KERNEL_FAULT] = { "sim_fault", SIM_WORK_FAULT, 2 },
};

int
sim_kernel_find(const char *name, enum sim_kernel *ret_kernel)
{
	for (int i = 0; i < SIM_KERNEL_COUNT; i++) {
		if (strcmp(kernels[i].name, name))
			continue;
		*ret_kernel = (enum sim_kernel)i;
		return 0;
	}
	return -ENOENT;
}

unsigned
sim_kernel_arg_count(enum sim_kernel kernel)
{
	return (unsigned)kernel < SIM_KERNEL_COUNT ? kernels[kernel].n_args : 0;
}

const char *
sim_kernel_name(enum sim_kernel kernel)
{
	return (unsigned)kernel < SIM_KERNEL_COUNT ? kernels[kernel].name : NULL;
}

static void
work_touch(struct sim_work *work, uint64_t addr, uint64_t n_bytes, enum sim_access access)
{
	if (n_bytes)
		work->touch[work->n_touches++] =
			(struct sim_touch){ .addr = addr, .n_bytes = n_bytes, .access = access };
}

/* sim_wait and sim_signal: one word of 32 bits. */
static bool
value_work(enum sim_kernel kernel, const uint64_t *args, struct sim_work *work)
{
	bool wait = kernel == SIM_KERNEL_WAIT;

	*work = (struct sim_work){
		.kind = kernels[kernel].work,
		.name = kernels[kernel].name,
		.a = { args[0], (uint32_t)args[1], wait ? SIM_COMPARE_EQ : 1, 4 },
		.is_kernel = true,
	};
	work_touch(work, args[0], 4, SIM_ATOMIC);
	return args[0] % 4 == 0;
}

static bool
fault_work(const uint64_t *args, struct sim_work *work)
{
	*work = (struct sim_work){
		.kind = SIM_WORK_FAULT,
		.name = "sim_fault",
		.a = { args[0] },
		.is_kernel = true,
		.spin_ns = args[1] * 1000,
	};
	return args[0] && args[0] <= CUDA_ERROR_UNKNOWN;
}

/* false: the words do not fit an address range, or an address is not aligned. */
bool
sim_kernel_work(enum sim_kernel kernel, const uint64_t *args, struct sim_work *work)
{
	uint64_t n_words, n_bytes;

	if ((unsigned)kernel >= SIM_KERNEL_COUNT || !args)
		return false;
	if (kernel == SIM_KERNEL_WAIT || kernel == SIM_KERNEL_SIGNAL)
		return value_work(kernel, args, work);
	if (kernel == SIM_KERNEL_FAULT)
		return fault_work(args, work);
	n_words = args[kernel == SIM_KERNEL_COPY ? 2 : 1];
	n_bytes = n_words * 4;
	if (n_words > UINT64_MAX / 8 || args[0] % 4 ||
	    (kernel == SIM_KERNEL_CHECK && args[3] % 8) ||
	    (kernel == SIM_KERNEL_COPY && args[1] % 4))
		return false;
	*work = (struct sim_work){ .kind = kernels[kernel].work, .name = kernels[kernel].name };
	work->is_kernel = true;
	work->spin_ns = args[kernels[kernel].n_args - 1] * 1000;
	memcpy(work->a, args, (kernels[kernel].n_args - 1) * sizeof(args[0]));
	switch (kernel) {
	case SIM_KERNEL_FILL:
		work_touch(work, args[0], n_bytes, SIM_WRITE);
		break;
	case SIM_KERNEL_CHECK:
		work_touch(work, args[0], n_bytes, SIM_READ);
		work_touch(work, args[3], 8, SIM_ATOMIC);
		break;
	case SIM_KERNEL_COPY:
		work->to = sim_line(args[0], n_bytes);
		work->from = sim_line(args[1], n_bytes);
		work_touch(work, args[0], n_bytes, SIM_WRITE);
		work_touch(work, args[1], n_bytes, SIM_READ);
		break;
	case SIM_KERNEL_WAIT:
	case SIM_KERNEL_SIGNAL:
	case SIM_KERNEL_FAULT:
	case SIM_KERNEL_COUNT:
		return false;
	}
	return true;
}

int
sim_kernel_launch(enum sim_kernel kernel, const uint64_t *args, CUstream handle)
{
	struct sim_stream *stream;
	struct sim_work work;
	int rc;

	if (!sim_kernel_work(kernel, args, &work))
		return CUDA_ERROR_INVALID_VALUE;
	sim_lock();
	rc = sim_stream_resolve_locked(handle, &stream);
	if (!rc)
		rc = sim_submit_locked(stream, &work, NULL, NULL, NULL);
	sim_unlock();
	return rc;
}
