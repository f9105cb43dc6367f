/* SPDX-License-Identifier: MIT */
/*
 * Our own calls that concern a memory pool, in relaxed capture mode. cuda.h does not say which
 * calls a capture prohibits; reading and setting an attribute of a pool are such (NVIDIA/cccl,
 * pull request 11360): in a thread that captures, or while another one does in global mode, they
 * fail, and the program's capture is lost. Of a trim nobody says.
 */
#pragma once

#include "shim/bind/cuda_abi.h"
#include "shim/bind/libcuda.h"
#include "shim/state/process.h"
#include "shim/track/captures.h"

static inline CUresult
ca_pool_get(const struct ca_real *real, CUmemoryPool pool, CUmemPool_attribute attr,
	    void *ret_value)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	bool exchanged = ca_capture_exchange_mode(real, &mode);
	CUresult rc = CA_INSIDE(real->cuMemPoolGetAttribute(pool, attr, ret_value));

	if (exchanged)
		ca_capture_restore_mode(real, mode);
	return rc;
}

static inline CUresult
ca_pool_set(const struct ca_real *real, CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	bool exchanged = ca_capture_exchange_mode(real, &mode);
	CUresult rc = CA_INSIDE(real->cuMemPoolSetAttribute(pool, attr, value));

	if (exchanged)
		ca_capture_restore_mode(real, mode);
	return rc;
}

static inline CUresult
ca_pool_trim(const struct ca_real *real, CUmemoryPool pool, size_t keep_bytes)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	bool exchanged = ca_capture_exchange_mode(real, &mode);
	CUresult rc = CA_INSIDE(real->cuMemPoolTrimTo(pool, keep_bytes));

	if (exchanged)
		ca_capture_restore_mode(real, mode);
	return rc;
}

static inline CUresult
ca_pool_current(const struct ca_real *real, CUdevice device, CUmemoryPool *ret_pool)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	bool exchanged = ca_capture_exchange_mode(real, &mode);
	CUresult rc = CA_INSIDE(real->cuDeviceGetMemPool(ret_pool, device));

	if (exchanged)
		ca_capture_restore_mode(real, mode);
	return rc;
}
