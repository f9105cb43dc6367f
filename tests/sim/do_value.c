/* SPDX-License-Identifier: MIT */
/*
 * Bodies: memory operations of streams (version 2), host functions, callbacks. A batch is the same
 * operations one after the other; it is checked as a whole before any is submitted. A barrier adds
 * nothing to the order of a stream and is accepted.
 */
#include "tests/sim/bodies.h"
#include "tests/sim/call.h"
#include "tests/sim/engine.h"

/* 0, or why the flags of a wait are refused. */
static int
wait_flags_check(unsigned flags)
{
	if (flags & CU_STREAM_WAIT_VALUE_FLUSH)
		return simb_unbuilt("flushing remote writes");
	return flags > SIM_COMPARE_NOR ? simb_misuse(CUDA_ERROR_INVALID_VALUE, "unknown flags") : 0;
}

/* NO_MEMORY_BARRIER is not supported in version 2 (cuda.h). */
static int
write_flags_check(unsigned flags)
{
	return flags ? simb_misuse(CUDA_ERROR_INVALID_VALUE, "flags must be 0") : 0;
}

static int
wait_value(CUstream stream, CUdeviceptr addr, uint64_t value, unsigned flags, unsigned n_bytes)
{
	int rc = wait_flags_check(flags);

	return rc ? rc
		  : sim_stream_wait_value(simb_stream(stream), addr, value, n_bytes,
					  (enum sim_compare)flags);
}

static int
write_value(CUstream stream, CUdeviceptr addr, uint64_t value, unsigned flags, unsigned n_bytes)
{
	int rc = write_flags_check(flags);

	return rc ? rc : sim_stream_write_value(simb_stream(stream), addr, value, n_bytes, true);
}

int
simb_do_cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
			       unsigned int flags)
{
	return wait_value(stream, addr, value, flags, 4);
}

int
simb_do_cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
			       unsigned int flags)
{
	return wait_value(stream, addr, value, flags, 8);
}

int
simb_do_cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
				unsigned int flags)
{
	return write_value(stream, addr, value, flags, 4);
}

int
simb_do_cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
				unsigned int flags)
{
	return write_value(stream, addr, value, flags, 8);
}

static int
batch_check(const CUstreamBatchMemOpParams *op)
{
	switch (op->operation) {
	case CU_STREAM_MEM_OP_WAIT_VALUE_32:
	case CU_STREAM_MEM_OP_WAIT_VALUE_64:
		return wait_flags_check(op->waitValue.flags);
	case CU_STREAM_MEM_OP_WRITE_VALUE_32:
	case CU_STREAM_MEM_OP_WRITE_VALUE_64:
		return write_flags_check(op->writeValue.flags);
	case CU_STREAM_MEM_OP_BARRIER:
		return op->memoryBarrier.flags > 1
			       ? simb_misuse(CUDA_ERROR_INVALID_VALUE, "no such barrier")
			       : 0;
	case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
		return simb_unbuilt("flushing remote writes");
	}
	return simb_misuse(CUDA_ERROR_INVALID_VALUE, "no such operation");
}

static int
batch_submit(CUstream stream, const CUstreamBatchMemOpParams *op)
{
	switch (op->operation) {
	case CU_STREAM_MEM_OP_WAIT_VALUE_32:
		return wait_value(stream, op->waitValue.address, op->waitValue.value,
				  op->waitValue.flags, 4);
	case CU_STREAM_MEM_OP_WAIT_VALUE_64:
		return wait_value(stream, op->waitValue.address, op->waitValue.value64,
				  op->waitValue.flags, 8);
	case CU_STREAM_MEM_OP_WRITE_VALUE_32:
		return write_value(stream, op->writeValue.address, op->writeValue.value,
				   op->writeValue.flags, 4);
	case CU_STREAM_MEM_OP_WRITE_VALUE_64:
		return write_value(stream, op->writeValue.address, op->writeValue.value64,
				   op->writeValue.flags, 8);
	case CU_STREAM_MEM_OP_BARRIER:
	case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
		break;
	}
	return 0;
}

int
simb_do_cuStreamBatchMemOp_v2(CUstream stream, unsigned int count,
			      CUstreamBatchMemOpParams *paramArray, unsigned int flags)
{
	const unsigned limit = 256; /* cuda.h: fewer than that */
	int rc = 0;

	if (flags || count >= limit || (count && !paramArray))
		return simb_misuse(CUDA_ERROR_INVALID_VALUE,
				   "flags, too many operations, or no operations");
	for (unsigned i = 0; !rc && i < count; i++)
		rc = batch_check(&paramArray[i]);
	for (unsigned i = 0; !rc && i < count; i++)
		rc = batch_submit(stream, &paramArray[i]);
	return rc;
}

int
simb_do_cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData)
{
	return sim_stream_host_function(simb_stream(hStream), fn, userData);
}

/* How the driver's thread waits for more host functions is not modelled. */
int
simb_do_cuLaunchHostFunc_v2(CUstream hStream, CUhostFn fn, void *userData, unsigned int syncMode)
{
	if (syncMode > CU_HOST_TASK_SPINWAIT)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "no such way to wait");
	return simb_do_cuLaunchHostFunc(hStream, fn, userData);
}

int
simb_do_cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void *userData,
			    unsigned int flags)
{
	if (flags)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "flags must be 0");
	return sim_stream_callback(simb_stream(hStream), callback, userData, hStream);
}
