/* SPDX-License-Identifier: MIT */
/*
 * Bodies: devices and their primary contexts. A CUdevice is its ordinal.
 */
#include <stdio.h>
#include <string.h>

#include "tests/sim/bodies.h"
#include "tests/sim/call.h"
#include "tests/sim/engine.h"

static const struct {
	int number, value;
} attributes[] = {
#define SIM_ATTRIBUTE(number, value, name) { number, value },
#include "tests/sim/attributes.def"
#undef SIM_ATTRIBUTE
};

/* 0, or INVALID_VALUE without a place for the answer, INVALID_DEVICE for a bad ordinal. */
static int
device_check(CUdevice dev, const void *answer)
{
	if (!answer) {
		simb_misuse(CUDA_ERROR_INVALID_VALUE, "no place for the answer");
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (dev >= 0 && dev < sim_device_count())
		return 0;
	simb_misuse(CUDA_ERROR_INVALID_DEVICE, "no such device");
	return CUDA_ERROR_INVALID_DEVICE;
}

int
simb_do_cuDeviceGet(CUdevice *device, int ordinal)
{
	int rc = device_check(ordinal, device);

	if (!rc)
		*device = ordinal;
	return rc;
}

int
simb_do_cuDeviceGetCount(int *count)
{
	if (!count)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "no place for the answer");
	*count = sim_device_count();
	return 0;
}

int
simb_do_cuDeviceGetName(char *name, int len, CUdevice dev)
{
	int rc = device_check(dev, name);

	if (rc)
		return rc;
	if (len <= 0)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "no room for the name");
	snprintf(name, (size_t)len, "simcuda device %d", dev);
	return 0;
}

int
simb_do_cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev)
{
	int rc = device_check(dev, pi);

	if (rc)
		return rc;
	if (attrib == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID) {
		*pi = dev + 1;
		return 0;
	}
	if (attrib == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) {
		*pi = !simb_knobs()->no_vmm;
		return 0;
	}
	if (attrib == CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED) {
		*pi = simb_knobs()->rdma;
		return 0;
	}
	for (size_t i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++) {
		if (attributes[i].number == (int)attrib) {
			*pi = attributes[i].value;
			return 0;
		}
	}
	return simb_misuse(CUDA_ERROR_INVALID_VALUE, "no such attribute");
}

int
simb_do_cuDeviceComputeCapability(int *major, int *minor, CUdevice dev)
{
	int rc = device_check(dev, minor);

	if (!rc)
		rc = simb_do_cuDeviceGetAttribute(
			major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, dev);
	if (!rc)
		rc = simb_do_cuDeviceGetAttribute(
			minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, dev);
	return rc;
}

int
simb_do_cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
	int rc = device_check(dev, bytes);

	if (!rc)
		*bytes = sim_total_bytes(dev);
	return rc;
}

int
simb_do_cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev)
{
	int rc = device_check(dev, uuid);

	if (!rc) {
		memcpy(uuid->bytes, "simcuda-device-", 15);
		uuid->bytes[15] = (char)dev;
	}
	return rc;
}

int
simb_do_cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev)
{
	char text[16];
	int rc = device_check(dev, pciBusId);

	if (rc)
		return rc;
	snprintf(text, sizeof(text), "0000:%02X:00.0", (unsigned)(dev + 1) & 0xff);
	if (len < (int)sizeof("0000:00:00.0"))
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "no room for the bus id");
	memcpy(pciBusId, text, sizeof("0000:00:00.0"));
	return 0;
}

/* Every device can reach every other; none is its own peer. */
int
simb_do_cuDeviceCanAccessPeer(int *canAccessPeer, CUdevice dev, CUdevice peerDev)
{
	int rc = device_check(dev, canAccessPeer);

	if (!rc)
		rc = device_check(peerDev, canAccessPeer);
	if (!rc)
		*canAccessPeer = dev != peerDev;
	return rc;
}

int
simb_do_cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attrib, CUdevice srcDevice,
				CUdevice dstDevice)
{
	int rc = device_check(srcDevice, value);

	if (!rc)
		rc = device_check(dstDevice, value);
	if (!rc && srcDevice == dstDevice)
		rc = simb_misuse(CUDA_ERROR_INVALID_DEVICE, "a device is not its own peer");
	if (!rc && (attrib < CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK ||
		    attrib > CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED))
		rc = simb_misuse(CUDA_ERROR_INVALID_VALUE, "no such attribute");
	if (!rc)
		*value = attrib == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED ||
			 attrib == CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED;
	return rc;
}

int
simb_do_cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
	int rc = device_check(dev, pctx);

	return rc ? rc : sim_primary_retain(dev, pctx);
}

int
simb_do_cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
	int rc = device_check(dev, &dev);

	return rc ? rc : sim_primary_release(dev);
}

int
simb_do_cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
	int rc = device_check(dev, &dev);

	return rc ? rc : sim_primary_reset(dev);
}

int
simb_do_cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
	int rc = device_check(dev, flags);

	if (!rc)
		rc = device_check(dev, active);
	return rc ? rc : sim_primary_get_state(dev, flags, active);
}

int
simb_do_cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags)
{
	int rc = device_check(dev, &dev);

	if (!rc && (flags & ~(unsigned)CU_CTX_FLAGS_MASK))
		rc = simb_misuse(CUDA_ERROR_INVALID_VALUE, "unknown flags");
	return rc ? rc : sim_primary_set_flags(dev, flags);
}
