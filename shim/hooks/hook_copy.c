/* SPDX-License-Identifier: MIT */
/*
 * The copies that synchronise, from the device to the host, and the one that seems to.
 *
 * "For transfers from device memory to either pageable or pinned host memory, the function returns
 * only once the copy has completed" (CUDA's page on API synchronization behavior). The copy is
 * ordered behind everything in its stream, on the legacy stream behind every blocking stream of the
 * context too. So all of that has finished, and the copy itself needs no stamp.
 *
 * The driver goes by what a pointer is, not by the name of the call: a destination on the device
 * makes it a copy that need not wait, and one from the host's memory may be made by the host alone.
 * Managed memory is neither. So the driver is asked for both ends.
 */
#include "config/mutant.h"
#include "shim/hooks/hook.h"
#include "shim/hooks/submission.h"

/* CU_MEMORYTYPE_*; 0: not known to the driver. *ret_managed: also where it does not say. */
static unsigned
memory_type(const struct ca_real *real, uint64_t address, bool *ret_managed)
{
	CUpointer_attribute wanted[] = { CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
					 CU_POINTER_ATTRIBUTE_IS_MANAGED };
	unsigned type = 0, managed = 0; /* an address that the driver does not know keeps these */
	void *answers[] = { &type, &managed };

	*ret_managed = !real->cuPointerGetAttributes ||
		       CA_INSIDE(real->cuPointerGetAttributes(2, wanted, answers, address)) ||
		       managed;
	return type;
}

static bool
is_to_host(const struct ca_real *real, uint64_t target, uint64_t source)
{
	bool target_managed, source_managed;
	unsigned to = memory_type(real, target, &target_managed);
	unsigned from = memory_type(real, source, &source_managed);

	return (to == 0 || to == CU_MEMORYTYPE_HOST) && from == CU_MEMORYTYPE_DEVICE &&
	       !target_managed && !source_managed;
}

static uint64_t
bound_before(struct ca_stream *stream, enum ca_flavour flavour)
{
	if (flavour == CA_FLAVOUR_PER_THREAD)
		return ca_order_bound(stream);
	return ca_order_space_bound(ca_stream_space(stream));
}

static void
finished(struct ca_stream *stream, enum ca_flavour flavour, uint64_t bound)
{
	if (flavour == CA_FLAVOUR_PER_THREAD)
		ca_order_finished(stream, bound);
	else
		ca_order_space_finished(ca_stream_space(stream), bound, true);
}

/* Stream of the copy, with a bound for all that it waits for. */
struct copy {
	enum ca_flavour flavour;
	struct ca_touch touch;
	struct ca_stream *stream;
	uint64_t bound;
};

static struct copy
copy_begin(enum ca_flavour flavour, uint64_t target, uint64_t source, size_t bytes)
{
	struct copy copy = {
		.flavour = flavour,
		.touch = { .n = 2, .range = { { target, bytes }, { source, bytes } } },
	};

	copy.stream = ca_submission_begin(flavour, NULL, &copy.touch);
	if (copy.stream)
		copy.bound = bound_before(copy.stream, flavour);
	return copy;
}

/* "For transfers from device memory to device memory, no host-side synchronization is performed",
 * although the call has a twin with Async in its name. */
static bool
is_completed(const struct ca_real *real, const struct copy *copy, bool to_host)
{
	if (!to_host)
		return CA_MUTANT(DTOD_IS_FINISH);
	return copy->touch.range[0].bytes &&
	       is_to_host(real, copy->touch.range[0].address, copy->touch.range[1].address);
}

/* `to_host`: by the name of the call. */
static CUresult
copy_end(const struct ca_real *real, const struct copy *copy, bool to_host, CUresult rc)
{
	CA_KEEP_ERRNO;

	if (rc == CUDA_SUCCESS && copy->stream && is_completed(real, copy, to_host)) {
		finished(copy->stream, copy->flavour, copy->bound);
		return rc;
	}
	ca_submission_end(copy->stream);
	ca_submission_foreign(copy->stream, &copy->touch);
	return rc;
}

#define COPY(symbol, flavour, type, to_host)                                                       \
	CUresult symbol(type target, CUdeviceptr source, size_t bytes)                             \
	{                                                                                          \
		CA_HOOK_REAL(real, symbol);                                                        \
		struct copy copy = copy_begin(flavour, (uintptr_t)target, source, bytes);          \
                                                                                                   \
		return copy_end(real, &copy, to_host,                                              \
				CA_INSIDE(real->symbol(target, source, bytes)));                   \
	}
COPY(cuMemcpyDtoH_v2, CA_FLAVOUR_LEGACY, void *, true)
COPY(cuMemcpyDtoH_v2_ptds, CA_FLAVOUR_PER_THREAD, void *, true)
COPY(cuMemcpyDtoD_v2, CA_FLAVOUR_LEGACY, CUdeviceptr, false)
COPY(cuMemcpyDtoD_v2_ptds, CA_FLAVOUR_PER_THREAD, CUdeviceptr, false)
