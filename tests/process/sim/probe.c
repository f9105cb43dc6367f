/* SPDX-License-Identifier: MIT */
/*
 * A program linked to the simulated driver, one scenario a run: probe NAME [ARGS]. It prints what
 * it saw as "key value" lines and leaves judging to the test. Linked directly, so it also shows
 * that every name resolves.
 */
#include "tests/process/sim/probe.h"

static int
probe_init(int argc, char **argv)
{
	int version = -1, count = -1;
	size_t n_bytes;

	SAY("count_before", cuDeviceGetCount(&count));
	SAY("init", cuInit(0));
	SAY("version_rc", cuDriverGetVersion(&version));
	SAY("version", version);
	SAY("count_rc", cuDeviceGetCount(&count));
	SAY("count", count);
	for (int i = 0; i < count; i++) {
		SAY("total_rc", cuDeviceTotalMem_v2(&n_bytes, i));
		SAY("total", n_bytes);
	}
	return 0;
}

/* getproc BASE VERSION FLAGS [4]: rc, status, and the name of the function found */
static int
probe_getproc(int argc, char **argv)
{
	void *pfn = (void *)0x1;
	CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)99;
	int version = (int)strtol(argv[1], NULL, 10);
	cuuint64_t flags = strtoull(argv[2], NULL, 0);
	Dl_info info;

	if (argc > 3)
		SAY("rc", cuGetProcAddress(argv[0], &pfn, version, flags));
	else
		SAY("rc", cuGetProcAddress_v2(argv[0], &pfn, version, flags, &status));
	SAY("status", status);
	if (!pfn)
		printf("found NULL\n");
	else if (pfn == (void *)0x1)
		printf("found untouched\n");
	else
		printf("found %s\n", dladdr(pfn, &info) && info.dli_sname ? info.dli_sname : "?");
	return 0;
}

/* call SYMBOL...: calls each without arguments, as a program would that found it by dlsym */
static int
probe_call(int argc, char **argv)
{
	for (int i = 0; i < argc; i++) {
		void *at = dlsym(RTLD_DEFAULT, argv[i]);
		CUresult (*function)(void);

		memcpy(&function, &at, sizeof(at));
		SAY("found", !!function);
		if (function)
			SAY("rc", function());
	}
	return 0;
}

/* alloc N BYTES */
static int
probe_alloc(int argc, char **argv)
{
	CUdeviceptr ptr = 0;

	begin();
	for (int i = 0; i < (int)strtol(argv[0], NULL, 10); i++)
		SAY("alloc", cuMemAlloc_v2(&ptr, strtoull(argv[1], NULL, 0)));
	return 0;
}

static int
probe_counts(int argc, char **argv)
{
	CUdeviceptr ptr[3];
	char bytes[64], small[8], *text;
	size_t n;

	begin();
	for (int i = 0; i < 3; i++)
		SAY("alloc", cuMemAlloc_v2(&ptr[i], 4 << 20));
	SAY("htod", cuMemcpyHtoD_v2(ptr[0], bytes, sizeof(bytes)));
	SAY("free", cuMemFree_v2(ptr[1]));
	SAY("again", cuMemFree_v2(ptr[1]));
	n = simcuda_stats(small, sizeof(small));
	SAY("cut", strlen(small));
	text = malloc(n + 1);
	SAY("same", simcuda_stats(text, n + 1) == n);
	printf("json %s", text);
	free(text);
	return 0;
}

static int
probe_abi32(int argc, char **argv)
{
	CUdeviceptr_v1 ptr = 7;
	unsigned free32 = 0, total32 = 0;
	CUdeviceptr big;
	size_t free64, total64;

	begin();
	SAY("alloc32", cuMemAlloc(&ptr, 1 << 20));
	SAY("ptr", ptr);
	SAY("info32", cuMemGetInfo(&free32, &total32));
	SAY("total32", total32);
	SAY("info64", cuMemGetInfo_v2(&free64, &total64));
	SAY("lost", total64 - free64);
	SAY("info_null", cuMemGetInfo_v2(NULL, NULL));
	SAY("alloc64", cuMemAlloc_v2(&big, 1 << 20));
	SAY("free32", cuMemFree((CUdeviceptr_v1)big));
	SAY("free64", cuMemFree_v2(big));
	return 0;
}

static int
probe_fork(int argc, char **argv)
{
	bool before = !strcmp(argv[0], "before");
	int status, count;
	CUdeviceptr ptr;

	if (!before) {
		begin();
		SAY("alloc", cuMemAlloc_v2(&ptr, 4096));
	}
	if (!fork()) {
		CUcontext ctx;

		SAY("child_count", cuDeviceGetCount(&count));
		SAY("child_init", cuInit(0));
		SAY("child_ctx", cuCtxCreate_v2(&ctx, 0, 0));
		SAY("child_alloc", cuMemAlloc_v2(&ptr, 4096));
		exit(3);
	}
	wait(&status);
	SAY("child_exit", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
	if (!before)
		SAY("parent_alloc", cuMemAlloc_v2(&ptr, 4096));
	return 0;
}

static void
late(void)
{
	CUdeviceptr ptr;
	int version;

	SAY("late_alloc", cuMemAlloc_v2(&ptr, 4096));
	SAY("late_version", cuDriverGetVersion(&version));
}

static int
probe_late(int argc, char **argv)
{
	atexit(late);
	begin();
	return 0;
}

static int
probe_twins(int argc, char **argv)
{
	unsigned long long legacy = 0, ptsz = 0, per_thread = 0, explicit_legacy = 0;
	unsigned value = 0x01020304, seen = 0;
	CUdeviceptr ptr;

	begin();
	SAY("rc", cuStreamGetId(NULL, &legacy));
	SAY("rc", cuStreamGetId_ptsz(NULL, &ptsz));
	SAY("rc", cuStreamGetId(CU_STREAM_PER_THREAD, &per_thread));
	SAY("rc", cuStreamGetId_ptsz(CU_STREAM_LEGACY, &explicit_legacy));
	SAY("ptsz_is_per_thread", ptsz == per_thread);
	SAY("differ", legacy != ptsz);
	SAY("explicit_is_legacy", legacy == explicit_legacy);
	SAY("rc", cuMemAlloc_v2(&ptr, 4096));
	SAY("rc", cuMemcpyHtoD_v2_ptds(ptr, &value, sizeof(value)));
	SAY("rc", cuMemcpyDtoH_v2_ptds(&seen, ptr, sizeof(seen)));
	SAY("contents", seen == value);
	return 0;
}

static int
probe_pointer(int argc, char **argv)
{
	CUdeviceptr ptr, base = 0;
	size_t size = 0;
	int ordinal = 5, type = 0, n = 0;
	CUcontext ctx = NULL;
	CUipcMemHandle one, two;
	CUpointer_attribute ask[] = { CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
				      CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
				      CU_POINTER_ATTRIBUTE_CONTEXT };
	void *answers[] = { &ordinal, &type, &ctx };

	begin();
	SAY("rc", cuMemAlloc_v2(&ptr, 5000));
	SAY("rc", cuMemGetAddressRange_v2(&base, &size, ptr + 100));
	SAY("base", base == ptr);
	SAY("size", size);
	SAY("rc", cuPointerGetAttributes(3, ask, answers, ptr + 8));
	SAY("known", !ordinal && type == CU_MEMORYTYPE_DEVICE && ctx == context);
	SAY("rc", cuPointerGetAttributes(3, ask, answers, (CUdeviceptr)(uintptr_t)&n));
	SAY("foreign", ordinal == CU_DEVICE_INVALID && !type && !ctx);
	SAY("foreign_one", cuPointerGetAttribute(&type, ask[1], (CUdeviceptr)(uintptr_t)&n));
	SAY("rc", cuIpcGetMemHandle(&one, ptr));
	SAY("ipc_inside", cuIpcGetMemHandle(&two, ptr + 512));
	SAY("rc", cuMemFree_v2(ptr));
	SAY("range_after", cuMemGetAddressRange_v2(&base, &size, ptr));
	SAY("rc", cuMemAlloc_v2(&ptr, 5000));
	SAY("rc", cuIpcGetMemHandle(&two, ptr));
	SAY("ipc_unique", !!memcmp(&one, &two, sizeof(one)));
	return 0;
}

static long long
pool_value(CUmemoryPool pool, CUmemPool_attribute attribute)
{
	cuuint64_t value = 0;

	SAY("rc", cuMemPoolGetAttribute(pool, attribute, &value));
	return (long long)value;
}

static int
probe_pool(int argc, char **argv)
{
	CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				 .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
				 .maxSize = 3 << 20 };
	CUmemoryPool pool, first, second, owner = NULL;
	cuuint64_t threshold = UINT64_MAX;
	CUcontext owner_context = context;
	CUmemAccess_flags access = 0;
	CUdeviceptr ptr = 0, again = 0;
	int value = 7;

	begin();
	SAY("rc", cuMemPoolCreate(&pool, &props));
	SAY("rc", cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
	SAY("threshold",
	    pool_value(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) == (long long)threshold);
	SAY("properties", cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_MAX_POOL_SIZE, &threshold));
	SAY("rc", cuMemAllocFromPoolAsync(&ptr, 1000, pool, NULL));
	SAY("rc", cuPointerGetAttribute(
			  &owner, (CUpointer_attribute)CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, ptr));
	SAY("rc", cuPointerGetAttribute(&owner_context, CU_POINTER_ATTRIBUTE_CONTEXT, ptr));
	SAY("owner", owner == pool && !owner_context);
	SAY("used", pool_value(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
	SAY("rc", cuMemFreeAsync(ptr, NULL));
	SAY("rc", cuCtxSynchronize());
	SAY("reserved", pool_value(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
	SAY("rc", cuMemAllocFromPoolAsync_ptsz(&again, 1000, pool, NULL));
	SAY("again", again == ptr);
	SAY("over_max", cuMemAllocFromPoolAsync(&ptr, 5 << 20, pool, NULL));
	SAY("rc", cuMemPoolGetAccess(&access, pool, &props.location));
	SAY("access", access);
	SAY("rc", cuDeviceSetMemPool(0, pool));
	SAY("rc", cuDeviceGetDefaultMemPool(&first, 0));
	SAY("rc", cuDeviceGetMemPool(&second, 0));
	SAY("current", second == pool && first != pool);
	SAY("default", cuMemPoolDestroy(first));
	SAY("rc",
	    cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &(int){ 0 }));
	SAY("rc", cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &value));
	SAY("rule", value);
	SAY("rc", cuMemPoolDestroy(pool));
	SAY("rc", cuMemFree_v2(again));
	return 0;
}

static int
probe_contexts(int argc, char **argv)
{
	CUcontext other, primary, now;
	unsigned long long id, other_id;
	unsigned flags;
	int active, device;

	begin();
	SAY("rc", cuCtxAttach(&other, 0));
	SAY("same", other == context);
	SAY("rc", cuCtxDetach(context));
	SAY("rc", cuCtxGetId(context, &id));
	SAY("rc", cuCtxDetach(context));
	SAY("dead", cuCtxGetId(context, &id));
	SAY("rc", cuDevicePrimaryCtxRetain(&primary, 1));
	SAY("rc", cuCtxPushCurrent_v2(primary));
	SAY("rc", cuCtxGetDevice(&device));
	SAY("device", device);
	SAY("rc", cuCtxCreate_v4(&other, NULL, 0, 0));
	SAY("rc", cuCtxGetDevice_v2(&device, primary));
	SAY("device_of", device);
	SAY("rc", cuCtxGetCurrent(&now));
	SAY("restored", now == other);
	SAY("rc", cuCtxGetId(other, &other_id));
	SAY("rc", cuCtxDestroy_v2(other));
	SAY("rc", cuDevicePrimaryCtxRelease_v2(1));
	SAY("rc", cuDevicePrimaryCtxGetState(1, &flags, &active));
	SAY("active", active);
	SAY("bad_device", cuCtxCreate_v2(&other, 0, 9));
	return 0;
}

static pthread_barrier_t line_up;

static void *
first_call(void *arg)
{
	CUdeviceptr ptr;

	pthread_barrier_wait(&line_up);
	if (cuInit(0) || cuCtxSetCurrent(context))
		return (void *)1;
	if (!arg)
		return NULL;
	for (int i = 0; i < 100; i++)
		if (cuMemAlloc_v2(&ptr, 4096) || cuMemFree_v2(ptr))
			return (void *)1;
	return NULL;
}

static int
probe_threads(int argc, char **argv)
{
	pthread_t threads[16];
	void *failed, *any = NULL;

	for (int round = 0; round < 2; round++) {
		pthread_barrier_init(&line_up, NULL, 16);
		for (int i = 0; i < 16; i++)
			pthread_create(&threads[i], NULL, first_call, round ? threads : NULL);
		for (int i = 0; i < 16; i++) {
			pthread_join(threads[i], &failed);
			any = failed ? failed : any;
		}
		pthread_barrier_destroy(&line_up);
		if (!round)
			SAY("ctx", cuDevicePrimaryCtxRetain(&context, 0));
	}
	SAY("failed", !!any);
	return 0;
}

static int
probe_private(int argc, char **argv)
{
	static const unsigned char theirs[16] = { 0x6b, 0xd5, 0xfb, 0x6c };
	const struct simb_private_table *table = NULL;
	CUdeviceptr ptr;
	unsigned out = 0;
	CUuuid id;

	begin();
	SAY("rc", cuMemAlloc_v2(&ptr, 4096));
	memcpy(id.bytes, theirs, sizeof(id.bytes));
	SAY("other", cuGetExportTable((const void **)&table, &id));
	memcpy(id.bytes, SIMB_PRIVATE_TABLE_ID, sizeof(id.bytes));
	SAY("ours", cuGetExportTable((const void **)&table, &id));
	if (!table)
		return 0;
	SAY("size", table->n_bytes == sizeof(*table));
	SAY("rc", table->fill(ptr, 77, 1024, NULL));
	SAY("rc", cuMemcpyDtoH_v2(&out, ptr + 4092, 4));
	SAY("filled", out);
	return 0;
}

static int
probe_peer(int argc, char **argv)
{
	CUcontext other;
	CUdeviceptr ptr;
	int can = -1;

	begin();
	SAY("rc", cuMemAlloc_v2(&ptr, 4096));
	SAY("rc", cuDeviceCanAccessPeer(&can, 0, 1));
	SAY("can", can);
	SAY("rc", cuDeviceCanAccessPeer(&can, 0, 0));
	SAY("can", can);
	SAY("rc", cuDeviceGetP2PAttribute(&can, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1));
	SAY("can", can);
	SAY("self", cuDeviceGetP2PAttribute(&can, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 1, 1));
	SAY("rc", cuCtxCreate_v2(&other, 0, 1));
	SAY("flags", cuCtxEnablePeerAccess(context, 1));
	SAY("rc", cuCtxEnablePeerAccess(context, 0));
	SAY("rc", launch(kernel("sim_fill"), NULL, ptr, 1, 1, 0));
	SAY("rc", cuCtxSynchronize());
	SAY("rc", cuCtxDisablePeerAccess(context));
	SAY("rc", launch(kernel("sim_fill"), NULL, ptr, 1, 1, 0));
	SAY("without", cuCtxSynchronize());
	return 0;
}

static const struct {
	const char *name;
	int n_args; /* at least */
	int (*run)(int argc, char **argv);
} probes[] = {
	{ "init", 0, probe_init },
	{ "getproc", 3, probe_getproc },
	{ "call", 1, probe_call },
	{ "alloc", 2, probe_alloc },
	{ "counts", 0, probe_counts },
	{ "abi32", 0, probe_abi32 },
	{ "fork", 1, probe_fork },
	{ "late", 0, probe_late },
	{ "twins", 0, probe_twins },
	{ "kernel", 0, probe_kernel },
	{ "race", 0, probe_race },
	{ "manual", 0, probe_manual },
	{ "misuse", 0, probe_misuse },
	{ "pointer", 0, probe_pointer },
	{ "pool", 0, probe_pool },
	{ "capture", 0, probe_capture },
	{ "contexts", 0, probe_contexts },
	{ "threads", 0, probe_threads },
	{ "deadlock", 0, probe_deadlock },
	{ "value", 0, probe_value },
	{ "private", 0, probe_private },
	{ "peer", 0, probe_peer },
	{ "nodes", 0, probe_nodes },
	{ "library", 1, probe_library },
	{ "attributes", 0, probe_attributes },
	{ "kernel_launches", 0, probe_kernel_launches },
	{ "vmm", 1, probe_vmm },
};

int
main(int argc, char **argv)
{
	for (size_t i = 0; argc > 1 && i < sizeof(probes) / sizeof(probes[0]); i++)
		if (!strcmp(argv[1], probes[i].name) && argc - 2 >= probes[i].n_args)
			return probes[i].run(argc - 2, argv + 2);
	fprintf(stderr, "usage: probe NAME [ARGS]\n");
	return 2;
}
