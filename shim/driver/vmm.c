/* SPDX-License-Identifier: MIT */
/*
 * Virtual memory management (cuda.h, "Virtual Memory Management"): addresses are reserved, memory
 * is made, mapped there, and given access.
 *
 * The handle is released as soon as it is mapped: memory lives as long as a mapping of it (cuda.h,
 * cuMemRelease), so an address is all that has to be known of it, and where it is to be mapped a
 * second time, the driver tells the handle by the address. vmm_trial.c says where that can be
 * done, and which devices are given access.
 *
 * Memory is made in whatever capture mode the program's thread is in, as a segment is taken; the
 * rest, which takes nothing, is done in relaxed mode. It goes back as segments do (driver_table.c),
 * but for this: nothing waits for work.
 */
#include "shim/driver/vmm.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>

#include "allocator/core/types.h"
#include "config/log.h"
#include "shim/bind/libcuda.h"
#include "shim/driver/vmm_trial.h"
#include "shim/state/process.h"
#include "shim/track/captures.h"
#include "shim/track/contexts.h"

/* Times the device's memory: address space is plenty, and holes between extents cost some. */
enum { ADDRESSES = 4 };

/* Before memory is given up that the driver does not take back. */
enum { TRIES = 3 };

/* The first answer. Where that is an error the driver is asked again: nobody else knows of it. */
static CUresult
unmap(const struct ca_real *real, CUdeviceptr address, size_t bytes)
{
	CUresult rc = CA_INSIDE(real->cuMemUnmap(address, bytes)), again = rc;

	for (unsigned tries = 1; again != CUDA_SUCCESS && tries < TRIES; tries++)
		again = CA_INSIDE(real->cuMemUnmap(address, bytes));
	return rc;
}

static CUresult
release(const struct ca_real *real, CUmemGenericAllocationHandle handle)
{
	CUresult rc = CA_INSIDE(real->cuMemRelease(handle));

	for (unsigned tries = 1; rc != CUDA_SUCCESS && tries < TRIES; tries++)
		rc = CA_INSIDE(real->cuMemRelease(handle));
	return rc;
}

/* From the handle on. Nothing of it is left where it fails. */
static CUresult
map_handle(const struct ca_real *real, CUdevice device, CUdeviceptr address, size_t bytes,
	   CUmemGenericAllocationHandle handle)
{
	CUmemAccessDesc access[CA_VMM_DEVICES];
	size_t count = ca_vmm_access(device, access);
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	bool exchanged = ca_capture_exchange_mode(real, &mode);
	CUresult rc = CA_INSIDE(real->cuMemMap(address, bytes, 0, handle, 0)), released;

	if (rc == CUDA_SUCCESS) {
		rc = CA_INSIDE(real->cuMemSetAccess(address, bytes, access, count));
		if (rc != CUDA_SUCCESS)
			(void)unmap(real, address, bytes);
	}
	released = release(real, handle);
	if (rc == CUDA_SUCCESS && released != CUDA_SUCCESS) {
		/* it would outlive its mapping: not a second time */
		(void)unmap(real, address, bytes);
		rc = released;
	}
	if (exchanged)
		ca_capture_restore_mode(real, mode);
	return rc;
}

static CUresult
map(const struct ca_real *real, CUdevice device, CUdeviceptr address, size_t bytes)
{
	CUmemAllocationProp prop;
	CUmemGenericAllocationHandle handle;
	CUresult rc;

	ca_vmm_props(device, &prop);
	rc = CA_INSIDE(real->cuMemCreate(&handle, bytes, &prop, 0));
	return rc != CUDA_SUCCESS ? rc : map_handle(real, device, address, bytes, handle);
}

/* One page at two places, and back. */
static CUresult
try(const struct ca_real *real, CUdevice device, CUdeviceptr address)
{
	CUdeviceptr alias = address + CA_PAGE;
	CUmemAllocationProp prop;
	CUmemGenericAllocationHandle handle;
	CUresult rc, unmapped;

	ca_vmm_props(device, &prop);
	rc = CA_INSIDE(real->cuMemCreate(&handle, CA_PAGE, &prop, 0));
	if (rc != CUDA_SUCCESS)
		return rc;
	rc = CA_INSIDE(real->cuMemMap(alias, CA_PAGE, 0, handle, 0));
	if (rc != CUDA_SUCCESS) {
		(void)release(real, handle);
		return rc;
	}
	rc = map_handle(real, device, address, CA_PAGE, handle);
	if (rc == CUDA_SUCCESS)
		rc = unmap(real, address, CA_PAGE);
	unmapped = unmap(real, alias, CA_PAGE);
	return rc == CUDA_SUCCESS ? unmapped : rc;
}

/* Once a device. */
static CUresult
try_once(const struct ca_real *real, CUdevice device, CUdeviceptr address)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	bool exchanged;
	CUresult rc;

	if (ca_vmm_works(device))
		return CUDA_SUCCESS;
	exchanged = ca_capture_exchange_mode(real, &mode);
	rc = try(real, device, address);
	if (exchanged)
		ca_capture_restore_mode(real, mode);
	ca_vmm_tried(device, rc);
	return rc;
}

/* A call that is not supported never will be; any other failure may pass. */
static int
code(CUresult rc)
{
	return rc == CUDA_ERROR_NOT_SUPPORTED ? -ENOTSUP : (int)rc;
}

static void
say_failed(CUresult rc)
{
	static atomic_flag said = ATOMIC_FLAG_INIT;

	if (!atomic_flag_test_and_set(&said))
		ca_info("expandable_segments: the driver did not map memory (%d): segments are as "
			"ever until it does",
			(int)rc);
}

int
ca_vmm_reserve(void *self, void *space_context, uint64_t *ret_address, uint64_t *ret_bytes)
{
	const struct ca_real *real = ca_real();
	const struct ca_context *context = space_context;
	const char *reason = ca_vmm_reason_against(real, context->device);
	CUdeviceptr address;
	size_t total, bytes;
	CUresult rc;

	if (reason) {
		ca_vmm_say(reason);
		return -ENOTSUP;
	}
	rc = CA_INSIDE(real->cuDeviceTotalMem_v2(&total, context->device));
	if (rc == CUDA_SUCCESS) {
		bytes = (total + CA_PAGE - 1) / CA_PAGE * CA_PAGE * ADDRESSES;
		rc = CA_INSIDE(real->cuMemAddressReserve(&address, bytes, CA_PAGE, 0, 0));
	}
	if (rc != CUDA_SUCCESS) {
		ca_vmm_say("no addresses are to be had");
		return code(rc);
	}
	rc = try_once(real, context->device, address);
	if (rc != CUDA_SUCCESS) {
		(void)CA_INSIDE(real->cuMemAddressFree(address, bytes));
		ca_vmm_say("memory could not be mapped in a trial");
		return code(rc);
	}
	*ret_address = address;
	*ret_bytes = bytes;
	return 0;
}

int
ca_vmm_map(void *self, void *space_context, uint64_t address, uint64_t bytes)
{
	const struct ca_context *context = space_context;
	const char *reason = ca_vmm_reason_against(ca_real(), context->device);
	CUresult rc;

	if (reason) {
		ca_vmm_say(reason);
		return -ENOTSUP;
	}
	rc = map(ca_real(), context->device, address, bytes);
	if (rc != CUDA_SUCCESS && rc != CUDA_ERROR_OUT_OF_MEMORY)
		say_failed(rc);
	return code(rc);
}

int
ca_vmm_alias(void *self, void *space_context, uint64_t from, uint64_t to, uint64_t bytes)
{
	const struct ca_real *real = ca_real();
	const struct ca_context *context = space_context;
	CUmemGenericAllocationHandle handle;
	CUresult rc;

	if (!real->cuMemRetainAllocationHandle)
		return -ENOTSUP;
	if (ca_capture_disallows())
		return -EBUSY;
	/* NOLINTNEXTLINE(performance-no-int-to-ptr): it is the driver's argument */
	rc = CA_INSIDE(real->cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)from));
	if (rc == CUDA_SUCCESS)
		rc = map_handle(real, context->device, to, bytes, handle);
	return code(rc);
}

int
ca_vmm_unmap(void *self, void *space_context, uint64_t address, uint64_t bytes)
{
	const struct ca_real *real = ca_real();
	const struct ca_context *context = space_context;
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	bool exchanged;
	CUresult rc;

	if (ca_capture_disallows() && !atomic_load(&context->dead))
		return -EBUSY;
	exchanged = ca_capture_exchange_mode(real, &mode);
	rc = CA_INSIDE(real->cuMemUnmap(address, bytes));
	if (exchanged)
		ca_capture_restore_mode(real, mode);
	return (int)rc;
}

void
ca_vmm_release(void *self, void *space_context, uint64_t address, uint64_t bytes)
{
	(void)CA_INSIDE(ca_real()->cuMemAddressFree(address, bytes));
}
