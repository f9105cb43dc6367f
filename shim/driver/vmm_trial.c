/* SPDX-License-Identifier: MIT */
/*
 * An attribute of the device says that memory can be mapped; on WSL2, in virtual GPUs and in
 * containers the calls fail all the same, some with "out of memory". So one page is mapped at two
 * places, once a device, before anything rests on it.
 *
 * Memory of cuMemAlloc can be copied to any other device by a plain copy, which is known to fail
 * for mapped memory that the other device has no access to (PyTorch's CUDACachingAllocator,
 * memcpyAsync). So every device that the process sees is given access from the beginning, whatever
 * the program enables or disables between its contexts; and where one cannot reach the other's
 * memory, nothing is mapped.
 */
#include "shim/driver/vmm_trial.h"

#include <stdatomic.h>
#include <string.h>

#include "config/log.h"
#include "shim/bind/object.h"
#include "shim/driver/vmm.h"
#include "shim/state/process.h"

/* Libraries that give device memory to other processes, by the begin of their names. `import torch`
 * loads torch.multiprocessing. */
static const struct sharer {
	const char *begins, *reason;
} sharers[] = {
	{ "libmpi", "auto: MPI is loaded" },
	{ "libucp.", "auto: UCX is loaded" },
	{ "libuct.", "auto: UCX is loaded" },
	{ "libtorch_python.", "auto: torch.multiprocessing is loaded" },
};

enum trial { UNTRIED, WORKS, FAILS };

static _Atomic enum trial trials[CA_VMM_DEVICES];
static _Atomic bool is_rdma_capable[CA_VMM_DEVICES];
static _Atomic int device_count; /* 0: not asked yet */
static _Atomic bool stopped;
/* The generation of the list of libraries for which no sharer was found. */
static _Atomic uint64_t alone_at;

static bool
has_calls(const struct ca_real *real)
{
	return real && real->cuMemAddressReserve && real->cuMemAddressFree && real->cuMemCreate &&
	       real->cuMemRelease && real->cuMemMap && real->cuMemUnmap && real->cuMemSetAccess &&
	       real->cuDeviceGetCount && real->cuDeviceGetAttribute && real->cuDeviceTotalMem_v2 &&
	       real->cuDeviceCanAccessPeer;
}

static int
attribute(const struct ca_real *real, CUdevice_attribute which, CUdevice device)
{
	int value = 0;

	return CA_INSIDE(real->cuDeviceGetAttribute(&value, which, device)) ? 0 : value;
}

/* ---- auto */

static bool
is_auto(void)
{
	const struct ca_process *process = ca_process_made();

	return process && process->config.expandable_segments == CA_EXPANDABLE_AUTO;
}

static bool
visit(const struct ca_object *object, void *arg)
{
	const char **ret_reason = arg, *slash = strrchr(object->path, '/');
	const char *name = slash ? slash + 1 : object->path;

	for (size_t i = 0; i < sizeof(sharers) / sizeof(sharers[0]); i++)
		if (!strncmp(object->soname, sharers[i].begins, strlen(sharers[i].begins)) ||
		    !strncmp(name, sharers[i].begins, strlen(sharers[i].begins)))
			*ret_reason = sharers[i].reason;
	return *ret_reason;
}

static const char *
sharer_loaded(void)
{
	uint64_t generation = ca_object_generation();
	const char *reason = NULL;

	if (atomic_load(&alone_at) == generation)
		return NULL;
	ca_object_walk(visit, &reason);
	if (!reason)
		atomic_store(&alone_at, generation);
	return reason;
}

/* ---- the devices */

static bool
is_reached_by_all(const struct ca_real *real, CUdevice device, int count)
{
	int can;

	for (CUdevice other = 0; other < count; other++)
		if (other != device &&
		    (CA_INSIDE(real->cuDeviceCanAccessPeer(&can, other, device)) || !can))
			return false;
	return true;
}

/* Of the driver, before the trial. */
static const char *
query_device(const struct ca_real *real, CUdevice device)
{
	int count = 0;

	if (!has_calls(real))
		return "the driver is too old";
	if (CA_INSIDE(real->cuDeviceGetCount(&count)) || count < 1 || count > CA_VMM_DEVICES ||
	    device >= count)
		return "the driver does not count its devices";
	atomic_store(&device_count, count);
	if (!attribute(real, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device))
		return "the device does not map memory";
	if (!is_reached_by_all(real, device, count))
		return "a device cannot reach the memory of another";
	atomic_store(&is_rdma_capable[device],
		     attribute(real, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
			       device));
	return NULL;
}

const char *
ca_vmm_reason_against(const struct ca_real *real, CUdevice device)
{
	const char *reason = is_auto() ? sharer_loaded() : NULL;
	enum trial trial;

	if (reason)
		return reason;
	if (atomic_load(&stopped))
		return "memory was to be exported";
	trial = device < CA_VMM_DEVICES ? atomic_load(&trials[device]) : FAILS;
	if (trial == FAILS)
		return "memory could not be mapped in a trial";
	if (trial == UNTRIED)
		reason = query_device(real, device);
	if (!reason && is_auto() && atomic_load(&device_count) > 1)
		reason = "auto: the process sees several devices";
	return reason;
}

bool
ca_vmm_works(CUdevice device)
{
	return atomic_load(&trials[device]) == WORKS;
}

void
ca_vmm_tried(CUdevice device, CUresult rc)
{
	enum trial untried = UNTRIED;

	if (rc == CUDA_SUCCESS) {
		if (atomic_compare_exchange_strong(&trials[device], &untried, WORKS))
			ca_info("expandable_segments%s: memory is mapped on device %d",
				is_auto() ? ":auto" : "", (int)device);
	} else if (rc != CUDA_ERROR_OUT_OF_MEMORY) { /* there may be more another time */
		atomic_store(&trials[device], FAILS);
	}
}

void
ca_vmm_say(const char *reason)
{
	static atomic_flag said = ATOMIC_FLAG_INIT;

	if (!atomic_flag_test_and_set(&said))
		ca_info("expandable_segments: segments are as ever, since %s", reason);
}

void
ca_vmm_props(CUdevice device, CUmemAllocationProp *ret_prop)
{
	*ret_prop = (CUmemAllocationProp){ .type = CU_MEM_ALLOCATION_TYPE_PINNED,
					   .location = { CU_MEM_LOCATION_TYPE_DEVICE, device } };
	ret_prop->allocFlags.gpuDirectRDMACapable = atomic_load(&is_rdma_capable[device]);
}

size_t
ca_vmm_access(CUdevice device, CUmemAccessDesc ret_access[CA_VMM_DEVICES])
{
	size_t count = (size_t)atomic_load(&device_count);

	for (size_t i = 0; i < count; i++)
		ret_access[i] = (CUmemAccessDesc){
			.location = { CU_MEM_LOCATION_TYPE_DEVICE, (int)i },
			.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
		};
	return count;
}

void
ca_vmm_stop(void)
{
	atomic_store(&stopped, true);
}
