// SPDX-License-Identifier: MIT
// What reuse in stream order costs and rests on: `order cost` times the driver calls that the order tracker makes, and
// cuLaunchKernel itself; `order claims` tries what is only documented. Both print one line of JSON. Run `cost` with and
// without the preload: the difference of the launch figures is what the preload adds.
#include <cuda.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "need.hpp"

static CUfunction fill, wait_kernel, signal_kernel;
static CUcontext context;
static const char *comma = "";

static void say(const char *name, double value)
{
	printf("%s\"%s\":%.1f", comma, name, value);
	comma = ",";
}

// Median over 2,000 calls, one at a time; the device is idle or not, as the caller left it.
template <typename Call> static void time_call(const char *name, Call call)
{
	std::vector<double> spent;

	for (int i = 0; i < 2100; i++) {
		double begin = now_ns();

		call();
		if (i >= 100)
			spent.push_back(now_ns() - begin);
	}
	std::nth_element(spent.begin(), spent.begin() + spent.size() / 2, spent.end());
	say(name, spent[spent.size() / 2]);
}

static void launch(CUfunction kernel, CUstream stream, unsigned long long a, unsigned long long b,
		   unsigned long long c, unsigned long long d)
{
	void *args[] = { &a, &b, &c, &d };

	NEED(cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, args, nullptr));
}

static void cost()
{
	CUstream a, b;
	CUevent event;
	CUdeviceptr p, q;
	CUcontext current;

	NEED(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
	NEED(cuMemAlloc(&p, 4096));
	time_call("launch_one_stream_ns", [&] { launch(fill, a, p, 8, 1, 0); NEED(cuStreamSynchronize(a)); });
	NEED(cuCtxSynchronize());
	std::vector<double> rounds;
	for (int round = 0; round < 41; round++) {
		double begin = now_ns();

		for (int i = 0; i < 500; i++)
			launch(fill, a, p, 8, 1, 0);
		rounds.push_back((now_ns() - begin) / 500);
		NEED(cuCtxSynchronize());
	}
	std::sort(rounds.begin(), rounds.end());
	say("launch_burst_ns", rounds[rounds.size() / 2]);
	rounds.clear();
	for (int round = 0; round < 41; round++) {
		double begin = now_ns();

		for (int i = 0; i < 200; i++) {
			NEED(cuMemAlloc(&q, 1 << 20));
			launch(fill, a, q, 8, 1, 0);
			NEED(cuMemFree(q));
		}
		rounds.push_back((now_ns() - begin) / 200);
		NEED(cuCtxSynchronize());
	}
	std::sort(rounds.begin(), rounds.end());
	say("alloc_launch_free_ns", rounds[rounds.size() / 2]);
	NEED(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
	NEED(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	time_call("event_record_ns", [&] { NEED(cuEventRecord(event, a)); });
	time_call("event_query_done_ns", [&] { (void)cuEventQuery(event); });
	time_call("stream_wait_event_ns", [&] { NEED(cuStreamWaitEvent(b, event, 0)); });
	time_call("ctx_get_current_ns", [&] { NEED(cuCtxGetCurrent(&current)); });
#if CUDA_VERSION >= 12050
	time_call("ctx_record_event_ns", [&] { NEED(cuCtxRecordEvent(context, event)); });
#endif
	NEED(cuCtxSynchronize());
}

static bool busy(CUstream stream)
{
	return cuStreamQuery(stream) == CUDA_ERROR_NOT_READY;
}

static volatile int user_object_gone;

static void CUDA_CB destroy_user_object(void *)
{
	user_object_gone = 1;
}

// An event on a private blocking stream stands for the legacy stream's work, and holds nothing up.
static void claim_legacy_mark(CUdeviceptr flag)
{
	CUstream mark_stream, other;
	CUevent event;

	NEED(cuStreamCreate(&mark_stream, CU_STREAM_DEFAULT));
	NEED(cuStreamCreate(&other, CU_STREAM_DEFAULT));
	NEED(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	NEED(cuMemsetD32(flag, 0, 1));
	NEED(cuCtxSynchronize());
	launch(wait_kernel, nullptr, flag, 1, 0, 0);
	NEED(cuEventRecord(event, mark_stream));
	say("legacy_mark_waits_for_legacy_work", cuEventQuery(event) == CUDA_ERROR_NOT_READY);
	CUstream release;
	NEED(cuStreamCreate(&release, CU_STREAM_NON_BLOCKING));
	launch(signal_kernel, release, flag, 1, 0, 0);
	NEED(cuCtxSynchronize());
	say("legacy_mark_done_after_it", cuEventQuery(event) == CUDA_SUCCESS);
	// two blocking streams keep overlapping although a mark was recorded between
	NEED(cuMemsetD32(flag, 0, 1));
	NEED(cuCtxSynchronize());
	launch(wait_kernel, other, flag, 1, 0, 0);
	NEED(cuEventRecord(event, mark_stream));
	CUstream third;
	NEED(cuStreamCreate(&third, CU_STREAM_DEFAULT));
	launch(signal_kernel, third, flag, 1, 0, 0);
	double until = now_ns() + 2e9;
	while (busy(other) && now_ns() < until)
		;
	say("mark_is_no_barrier_between_blocking_streams", !busy(other));
	NEED(cuMemsetD32Async(flag, 1, 1, release));
	NEED(cuCtxSynchronize());
}

// A user object retained by a captured graph lives until graph, clone and executable are gone.
static void claim_user_object(CUdeviceptr p)
{
	CUstream stream;
	CUgraph graph, clone;
	CUgraphExec exec;
	CUuserObject object;

	NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	launch(fill, stream, p, 8, 3, 0);
	NEED(cuStreamEndCapture(stream, &graph));
	NEED(cuUserObjectCreate(&object, nullptr, destroy_user_object, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	NEED(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
	NEED(cuGraphClone(&clone, graph));
	NEED(cuGraphInstantiate(&exec, clone, 0));
	NEED(cuGraphDestroy(graph));
	say("user_object_outlives_graph", !user_object_gone);
	NEED(cuGraphDestroy(clone));
	say("user_object_outlives_clone", !user_object_gone);
	NEED(cuGraphLaunch(exec, stream));
	NEED(cuGraphExecDestroy(exec));
	NEED(cuCtxSynchronize());
	double until = now_ns() + 2e9;
	while (!user_object_gone && now_ns() < until)
		;
	say("user_object_goes_with_the_executable", user_object_gone);
}

int main(int argc, char **argv)
{
	CUdevice device;
	CUmodule module;
	CUdeviceptr memory;

	if (argc != 3) {
		fprintf(stderr, "usage: order cost|claims KERNELS.fatbin\n");
		return 2;
	}
	context = open_context(&device);
	NEED(cuModuleLoad(&module, argv[2]));
	NEED(cuModuleGetFunction(&fill, module, "sim_fill"));
	NEED(cuModuleGetFunction(&wait_kernel, module, "sim_wait"));
	NEED(cuModuleGetFunction(&signal_kernel, module, "sim_signal"));
	printf("{");
	if (!strcmp(argv[1], "cost")) {
		cost();
	} else {
		NEED(cuMemAlloc(&memory, 4096));
		claim_legacy_mark(memory);
		claim_user_object(memory);
	}
	printf("}\n");
	return 0;
}
