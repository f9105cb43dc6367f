/* SPDX-License-Identifier: MIT */
/*
 * Whether memory can and may be mapped (vmm.c): what is asked of the driver is asked once a device,
 * what is loaded into the process whenever that changes. Any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "shim/bind/cuda_abi.h"
#include "shim/bind/libcuda.h"

/* Devices that may be given access: CUDA makes no more visible in a process. */
enum { CA_VMM_DEVICES = 64 };

/* NULL: nothing is known to speak against it on the device. */
const char *ca_vmm_reason_against(const struct ca_real *real, CUdevice device);
/* A trial on the device has shown that it can. */
bool ca_vmm_works(CUdevice device);
/* It has ended so. */
void ca_vmm_tried(CUdevice device, CUresult rc);
/* Segments from now on, for `reason`, which is said once. */
void ca_vmm_say(const char *reason);
/* Of memory on the device, after ca_vmm_reason_against() has said that nothing is against it. */
void ca_vmm_props(CUdevice device, CUmemAllocationProp *ret_prop);
/* The devices that are given access to memory of the device: it and all others. Returns how many.
 */
size_t ca_vmm_access(CUdevice device, CUmemAccessDesc ret_access[CA_VMM_DEVICES]);
