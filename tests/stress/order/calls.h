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
