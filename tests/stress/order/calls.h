/* SPDX-License-Identifier: MIT */
/*
 * Driver entry points that tests/process/driver_api.def does not have. They are looked up by
 * dlsym(), so this program reaches the driver by two roads.
 */
#pragma once

#include "tests/process/driver_api.h"
#include "tests/sim/abi.h"

#define ORDER_CALLS(X)                                                                             \
	X(cuLaunchKernelEx,                                                                        \
	  (const CUlaunchConfig *config, CUfunction f, void **params, void **extra))               \
	X(cuLaunchKernelEx_ptsz,                                                                   \
	  (const CUlaunchConfig *config, CUfunction f, void **params, void **extra))               \
	X(cuStreamCreateWithPriority, (CUstream * s, unsigned flags, int priority))                \
	X(cuStreamQuery_ptsz, (CUstream s))                                                        \
	X(cuEventRecordWithFlags, (CUevent e, CUstream s, unsigned flags))                         \
	X(cuCtxRecordEvent, (CUcontext ctx, CUevent e))                                            \
	X(cuStreamWaitValue32_v2,                                                                  \
	  (CUstream s, CUdeviceptr word, cuuint32_t value, unsigned flags))                        \
	X(cuStreamWriteValue32_v2,                                                                 \
	  (CUstream s, CUdeviceptr word, cuuint32_t value, unsigned flags))                        \
	X(cuStreamBatchMemOp_v2,                                                                   \
	  (CUstream s, unsigned n, CUstreamBatchMemOpParams *ops, unsigned flags))                 \
	X(cuLaunchHostFunc, (CUstream s, CUhostFn fn, void *data))                                 \
	X(cuStreamAddCallback, (CUstream s, CUstreamCallback fn, void *data, unsigned flags))      \
	X(cuGetExportTable, (const void **table, const CUuuid *id))                                \
	X(cuGraphInstantiateWithFlags, (CUgraphExec * exec, CUgraph g, unsigned long long flags))  \
	X(cuGraphLaunch, (CUgraphExec exec, CUstream s))                                           \
	X(cuGraphLaunch_ptsz, (CUgraphExec exec, CUstream s))                                      \
	X(cuGraphExecDestroy, (CUgraphExec exec))                                                  \
	X(cuGraphClone, (CUgraph * clone, CUgraph g))                                              \
	X(cuGraphCreate, (CUgraph * g, unsigned flags))                                            \
	X(cuGraphAddChildGraphNode,                                                                \
	  (CUgraphNode * node, CUgraph g, const CUgraphNode *deps, size_t n, CUgraph child))       \
	X(cuGraphAddEventRecordNode,                                                               \
	  (CUgraphNode * node, CUgraph g, const CUgraphNode *deps, size_t n, CUevent e))           \
	X(cuGraphAddKernelNode_v2, (CUgraphNode * node, CUgraph g, const CUgraphNode *deps,        \
				    size_t n, const CUDA_KERNEL_NODE_PARAMS *params))              \
	X(cuLaunchCooperativeKernel,                                                               \
	  (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,          \
	   unsigned bz, unsigned shared, CUstream s, void **params))                               \
	X(cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D *copy, CUstream s))                             \
	X(cuMemcpy2DAsync_v2_ptsz, (const CUDA_MEMCPY2D *copy, CUstream s))                        \
	X(cuMemcpy3DAsync_v2, (const CUDA_MEMCPY3D *copy, CUstream s))                             \
	X(cuMemcpy3DPeerAsync, (const CUDA_MEMCPY3D_PEER *copy, CUstream s))                       \
	X(cuMemcpy2D_v2, (const CUDA_MEMCPY2D *copy))                                              \
	X(cuMemcpy2D_v2_ptds, (const CUDA_MEMCPY2D *copy))                                         \
	X(cuMemcpy2DUnaligned_v2, (const CUDA_MEMCPY2D *copy))                                     \
	X(cuMemcpy2DUnaligned_v2_ptds, (const CUDA_MEMCPY2D *copy))                                \
	X(cuMemcpy3D_v2, (const CUDA_MEMCPY3D *copy))                                              \
	X(cuMemcpy3D_v2_ptds, (const CUDA_MEMCPY3D *copy))                                         \
	X(cuMemcpyBatchAsync_v2,                                                                   \
	  (CUdeviceptr * dsts, CUdeviceptr * srcs, size_t * sizes, size_t n,                       \
	   CUmemcpyAttributes * attrs, size_t * attr_at, size_t n_attrs, CUstream s))              \
	X(cuMemcpy3DBatchAsync_v2,                                                                 \
	  (size_t n, CUDA_MEMCPY3D_BATCH_OP * ops, unsigned long long flags, CUstream s))          \
	X(cuMemsetD2D8Async, (CUdeviceptr dst, size_t pitch, unsigned char value, size_t width,    \
			      size_t height, CUstream s))                                          \
	X(cuMemsetD2D16Async, (CUdeviceptr dst, size_t pitch, unsigned short value, size_t width,  \
			       size_t height, CUstream s))                                         \
	X(cuMemsetD2D32Async, (CUdeviceptr dst, size_t pitch, unsigned value, size_t width,        \
			       size_t height, CUstream s))                                         \
	X(cuArrayCreate_v2, (CUarray * array, const CUDA_ARRAY_DESCRIPTOR *desc))                  \
	X(cuImportExternalSemaphore,                                                               \
	  (CUexternalSemaphore * semaphore, const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *desc))      \
	X(cuSignalExternalSemaphoresAsync,                                                         \
	  (const CUexternalSemaphore *list, const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *params,   \
	   unsigned n, CUstream s))                                                                \
	X(cuWaitExternalSemaphoresAsync,                                                           \
	  (const CUexternalSemaphore *list, const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *params,     \
	   unsigned n, CUstream s))                                                                \
	X(cuMemPrefetchAsync, (CUdeviceptr ptr, size_t n, CUdevice device, CUstream s))            \
	X(cuMemDiscardBatchAsync,                                                                  \
	  (CUdeviceptr * ptrs, size_t * sizes, size_t n, unsigned long long flags, CUstream s))    \
	X(cuStreamAttachMemAsync, (CUstream s, CUdeviceptr ptr, size_t n, unsigned flags))         \
	X(cuDeviceGetDevResource, (CUdevice device, CUdevResource * all, CUdevResourceType type))  \
	X(cuDevResourceGenerateDesc, (CUdevResourceDesc * desc, CUdevResource * list, unsigned n)) \
	X(cuGreenCtxCreate,                                                                        \
	  (CUgreenCtx * green, CUdevResourceDesc desc, CUdevice device, unsigned flags))           \
	X(cuGreenCtxDestroy, (CUgreenCtx green))                                                   \
	X(cuGreenCtxStreamCreate, (CUstream * s, CUgreenCtx green, unsigned flags, int priority))  \
	X(cuGreenCtxRecordEvent, (CUgreenCtx green, CUevent e))                                    \
	X(cuMemsetD32Async, (CUdeviceptr dst, unsigned value, size_t n, CUstream s))               \
	X(cuMemsetD32Async_ptsz, (CUdeviceptr dst, unsigned value, size_t n, CUstream s))

struct order_calls {
#define X(name, params) CUresult(*name) params;
	ORDER_CALLS(X)
#undef X
	/* The simulator's own: makes work complete on its manual clock. NULL on a real driver. */
	unsigned long long (*step)(unsigned long long n);
};

extern struct order_calls calls;

/* Ends the program with status 2 when one is missing. */
void calls_load(void);
