/* SPDX-License-Identifier: MIT */
/* Scenarios of work: kernels, captures, graphs, values in memory, host functions. */
#include "tests/process/sim/probe.h"

int
probe_kernel(int argc, char **argv)
{
	CUmodule module;
	CUfunction fill, check, none;
	CUdeviceptr ptr, errors;
	uint64_t words = 1024, value = 42, other = 43, spin = 0, found = 0;
	void *fill_args[] = { &ptr, &words, &value, &spin };
	uint64_t block[5];
	size_t n_block = sizeof(block);
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, block, CU_LAUNCH_PARAM_BUFFER_SIZE,
			  &n_block, CU_LAUNCH_PARAM_END };
	CUlaunchAttribute attribute = { .id = (CUlaunchAttributeID)2 };
	CUlaunchConfig config = { 1, 1, 1, 1, 1, 1, 0, NULL, &attribute, 1 };

	begin();
	SAY("rc", cuMemAlloc_v2(&ptr, words * 4));
	SAY("rc", cuMemAlloc_v2(&errors, 8));
	SAY("rc", cuMemsetD8_v2(errors, 0, 8));
	SAY("ptx", cuModuleLoadData(&module, ".version 8.0"));
	SAY("rc", cuModuleLoadData(&module, "simcuda"));
	SAY("rc", cuModuleGetFunction(&fill, module, "sim_fill"));
	SAY("rc", cuModuleGetFunction(&check, module, "sim_check"));
	SAY("unknown", cuModuleGetFunction(&none, module, "sim_none"));
	SAY("rc", cuLaunchKernel(fill, 1, 1, 1, 32, 1, 1, 0, NULL, fill_args, NULL));
	memcpy(block, (uint64_t[]){ ptr, words, other, errors, 0 }, sizeof(block));
	SAY("rc", cuLaunchKernel_ptsz(check, 1, 1, 1, 32, 1, 1, 0, CU_STREAM_LEGACY, NULL, extra));
	SAY("cooperative", cuLaunchKernelEx(&config, fill, fill_args, NULL));
	attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
	attribute.value.programmaticStreamSerializationAllowed = 1;
	SAY("rc", cuStreamCreate(&config.hStream, 0));
	SAY("rc", cuLaunchKernelEx(&config, fill, fill_args, NULL));
	SAY("rc", cuLaunchKernelEx(&config, fill, fill_args, NULL));
	attribute.id = CU_LAUNCH_ATTRIBUTE_IGNORE;
	SAY("rc", cuLaunchKernelEx(&config, fill, fill_args, NULL));
	SAY("no_threads", cuLaunchKernel(fill, 0, 1, 1, 1, 1, 1, 0, NULL, fill_args, NULL));
	SAY("not_a_function",
	    cuLaunchKernel((CUfunction)(void *)block, 1, 1, 1, 1, 1, 1, 0, NULL, fill_args, NULL));
	SAY("rc", cuMemcpyDtoH_v2(&found, errors, 8));
	SAY("errors", found);
	SAY("rc", cuModuleUnload(module));
	SAY("unloaded", cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, NULL, fill_args, NULL));
	SAY("rc", cuModuleLoadData(&module, "simcuda"));
	SAY("rc", cuModuleGetFunction(&fill, module, "sim_fill"));
	SAY("rc", cuCtxDestroy_v2(context));
	SAY("rc", cuCtxCreate_v2(&context, 0, 0));
	SAY("died", cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, NULL, fill_args, NULL));
	SAY("died_module", cuModuleGetFunction(&fill, module, "sim_fill"));
	return 0;
}

/* Two streams write the same bytes, unordered. */
int
probe_race(int argc, char **argv)
{
	CUstream stream[2];
	CUdeviceptr ptr;

	begin();
	SAY("rc", cuMemAlloc_v2(&ptr, 4096));
	for (int i = 0; i < 2; i++)
		SAY("rc", cuStreamCreate(&stream[i], 1));
	for (int i = 0; i < 2; i++)
		SAY("rc", cuMemsetD32Async(ptr, 1, 1024, stream[i]));
	SAY("rc", cuCtxSynchronize());
	return 0;
}

int
probe_manual(int argc, char **argv)
{
	CUstream stream;
	CUdeviceptr ptr;

	begin();
	SAY("rc", cuMemAlloc_v2(&ptr, 4096));
	SAY("rc", cuStreamCreate(&stream, 1));
	SAY("rc", cuMemsetD32Async(ptr, 1, 1024, stream));
	usleep(20000);
	SAY("query", cuStreamQuery(stream));
	SAY("stepped", simcuda_step(100));
	SAY("query_after", cuStreamQuery(stream));
	return 0;
}

int
probe_misuse(int argc, char **argv)
{
	begin();
	errno = 17;
	SAY("free", cuMemFree_v2(0x1234));
	SAY("errno", errno);
	return 0;
}

int
probe_capture(int argc, char **argv)
{
	CUstream stream;
	CUstreamCaptureStatus status;
	CUgraph graph;
	CUgraphExec exec;
	CUdeviceptr ptr;
	size_t n;
	unsigned seen = 0;

	begin();
	SAY("rc", cuMemAlloc_v2(&ptr, 4096));
	SAY("rc", cuMemsetD32_v2(ptr, 1, 1024));
	SAY("rc", cuStreamCreate(&stream, 1));
	SAY("rc", cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	SAY("rc", cuMemsetD32Async(ptr, 9, 1024, stream));
	SAY("rc", cuStreamIsCapturing(stream, &status));
	SAY("capturing", status);
	SAY("look_inside", cuStreamGetCaptureInfo_v2(stream, &status, NULL, NULL, NULL, &n));
	SAY("rc", cuStreamEndCapture(stream, &graph));
	SAY("rc", cuGraphInstantiateWithFlags(&exec, graph, 0));
	SAY("rc", cuMemcpyDtoH_v2(&seen, ptr, 4));
	SAY("before", seen);
	SAY("rc", cuGraphLaunch(exec, stream));
	SAY("rc", cuStreamSynchronize(stream));
	SAY("rc", cuMemcpyDtoH_v2(&seen, ptr, 4));
	SAY("after", seen);
	SAY("rc", cuGraphExecDestroy(exec));
	SAY("rc", cuGraphDestroy(graph));
	return 0;
}

int
probe_deadlock(int argc, char **argv)
{
	CUdeviceptr ptr;

	begin();
	SAY("rc", cuMemAlloc_v2(&ptr, 4096));
	SAY("rc", launch(kernel("sim_wait"), NULL, ptr, 7, 0, 0));
	SAY("rc", launch(kernel("sim_fill"), NULL, ptr, 1, 1, 0));
	SAY("sync", cuCtxSynchronize());
	return 0;
}

static CUresult rc_inside[3];

static void
host_function(void *data)
{
	CUdeviceptr ptr;
	int version;

	rc_inside[0] = cuMemAlloc_v2(&ptr, 512);
	rc_inside[1] = cuStreamQuery(NULL);
	rc_inside[2] = cuDriverGetVersion(&version);
}

static void
callback(CUstream stream, CUresult status, void *data)
{
	*(CUstream *)data = stream;
}

/* Values in memory and host functions through the driver's names, batches included. */
int
probe_value(int argc, char **argv)
{
	CUstreamBatchMemOpParams op[4] = { { .pad = { 0 } } };
	CUstream s, t, shown = (CUstream)1;
	CUdeviceptr ptr;
	uint64_t out[2] = { 0, 0 };

	begin();
	SAY("rc", cuMemAlloc_v2(&ptr, 4096));
	SAY("rc", cuMemsetD8_v2(ptr, 0, 4096));
	SAY("rc", cuStreamCreate(&s, 1));
	SAY("rc", cuStreamCreate(&t, 1));
	SAY("rc", cuStreamWaitValue32_v2(s, ptr, 3, 0));
	SAY("rc", cuStreamWriteValue64_v2(s, ptr + 8, 1ull << 40, 0));
	op[0].operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
	op[0].waitValue.address = ptr + 8;
	op[0].waitValue.value64 = 1ull << 40;
	op[0].waitValue.flags = 1;
	op[1].operation = CU_STREAM_MEM_OP_BARRIER;
	op[2].operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
	op[2].writeValue.address = ptr + 4;
	op[2].writeValue.value = 77;
	SAY("rc", cuStreamBatchMemOp_v2(t, 3, op, 0));
	SAY("before", cuStreamQuery(s));
	SAY("rc", cuStreamWriteValue32_v2_ptsz(NULL, ptr, 4, 0));
	SAY("rc", cuLaunchHostFunc(s, host_function, NULL));
	SAY("rc", cuStreamAddCallback(s, callback, &shown, 0));
	SAY("rc", cuStreamSynchronize(s));
	SAY("rc", cuStreamSynchronize(t));
	SAY("rc", cuMemcpyDtoH_v2(out, ptr, 16));
	SAY("low", out[0] & 0xffffffff);
	SAY("batch", out[0] >> 32);
	SAY("wide", out[1] == 1ull << 40);
	SAY("shown", shown == s);
	for (int i = 0; i < 3; i++)
		SAY("inside", rc_inside[i]);
	SAY("flush", cuStreamWaitValue32_v2(s, ptr, 3, 1 << 30));
	SAY("no_barrier", cuStreamWriteValue32_v2(s, ptr, 3, 1));
	SAY("host_memory", cuStreamWriteValue32_v2(s, (CUdeviceptr)(uintptr_t)out, 3, 0));
	op[1].operation = (CUstreamBatchMemOpType)9;
	op[2].writeValue.value = 78;
	SAY("bad_batch", cuStreamBatchMemOp_v2(s, 3, op, 0));
	SAY("long_batch", cuStreamBatchMemOp_v2(s, 256, op, 0));
	SAY("rc", cuStreamSynchronize(s));
	SAY("rc", cuMemcpyDtoH_v2(out, ptr, 16));
	SAY("untouched", out[0] >> 32);
	return 0;
}

static void
add_one(void *data)
{
	__atomic_fetch_add((int *)data, 1, __ATOMIC_RELAXED);
}

/* A graph built by hand, with a user object, through the driver's names. */
int
probe_nodes(int argc, char **argv)
{
	uint64_t words = 1024, value = 7, spin = 0;
	int calls = 0, destroyed = 0;
	unsigned out[4] = { 0 };
	CUdeviceptr ptr;
	void *args[] = { &ptr, &words, &value, &spin };
	CUDA_KERNEL_NODE_PARAMS fill = { .gridDimX = 1, .kernelParams = args };
	CUDA_MEMSET_NODE_PARAMS set = { .value = 3, .elementSize = 4, .width = 1, .height = 1 };
	CUDA_HOST_NODE_PARAMS host = { add_one, &calls };
	CUDA_MEMCPY3D copy = { .srcMemoryType = CU_MEMORYTYPE_DEVICE,
			       .dstMemoryType = CU_MEMORYTYPE_HOST,
			       .dstHost = out,
			       .WidthInBytes = 8,
			       .Height = 1,
			       .Depth = 1 };
	CUgraphExecUpdateResultInfo info;
	CUgraph graph, clone, child;
	CUuserObject object;
	CUgraphNode node;
	CUgraphExec exec;
	CUevent event;

	begin();
	SAY("rc", cuMemAlloc_v2(&ptr, 4096));
	SAY("rc", cuEventCreate(&event, 0));
	fill.func = kernel("sim_fill");
	set.dst = copy.srcDevice = ptr;
	SAY("rc", cuGraphCreate(&graph, 0));
	SAY("rc", cuGraphCreate(&child, 0));
	SAY("rc", cuGraphAddHostNode(&node, child, NULL, 0, &host));
	SAY("rc", cuGraphAddEmptyNode(&node, graph, NULL, 0));
	SAY("rc", cuGraphAddKernelNode_v2(&node, graph, &node, 1, &fill));
	SAY("rc", cuGraphAddMemsetNode(&node, graph, &node, 1, &set, context));
	SAY("rc", cuGraphAddMemcpyNode(&node, graph, &node, 1, &copy, context));
	SAY("rc", cuGraphAddChildGraphNode(&node, graph, &node, 1, child));
	SAY("rc", cuGraphAddEventRecordNode(&node, graph, &node, 1, event));
	copy.Height = 2;
	copy.srcPitch = 16;
	SAY("two_rows", cuGraphAddMemcpyNode(&node, graph, &node, 1, &copy, context));
	SAY("rc", cuUserObjectCreate(&object, &destroyed, add_one, 1, 1));
	SAY("rc", cuUserObjectRetain(object, 1));
	SAY("rc", cuUserObjectRelease(object, 1));
	SAY("rc", cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
	SAY("rc", cuGraphClone(&clone, graph));
	SAY("rc", cuGraphInstantiateWithFlags(&exec, clone, 0));
	SAY("rc", cuGraphExecUpdate_v2(exec, graph, &info));
	SAY("topology", cuGraphExecUpdate_v2(exec, child, &info));
	SAY("result", info.result);
	SAY("rc", cuGraphUpload(exec, NULL));
	for (int i = 0; i < 3; i++)
		SAY("rc", cuGraphLaunch(exec, NULL));
	SAY("rc", cuEventSynchronize(event));
	SAY("rc", cuCtxSynchronize());
	SAY("calls", calls);
	SAY("set", out[0]);
	SAY("filled", out[1]);
	SAY("second_row", out[2]);
	SAY("rc", cuGraphReleaseUserObject(clone, object, 1));
	SAY("rc", cuGraphDestroy(graph));
	SAY("rc", cuGraphDestroy(clone));
	usleep(2000);
	SAY("early", __atomic_load_n(&destroyed, __ATOMIC_RELAXED));
	SAY("rc", cuGraphExecDestroy(exec));
	while (!__atomic_load_n(&destroyed, __ATOMIC_RELAXED))
		usleep(100);
	SAY("destroyed", destroyed);
	return 0;
}
