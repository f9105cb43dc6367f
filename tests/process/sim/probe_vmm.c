/* SPDX-License-Identifier: MIT */
/* Scenarios of virtual memory management, as a program calls it. */
#include <sys/socket.h>

#include "tests/process/sim/probe.h"

enum {
	GRAIN = 2 << 20,
	FD = 1, /* CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR */
};

static CUmemAllocationProp
plain(int device)
{
	return (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = (CUmemAllocationHandleType)FD,
		.location = { CU_MEM_LOCATION_TYPE_DEVICE, device },
	};
}

static CUmemGenericAllocationHandle
create(size_t n_bytes)
{
	CUmemAllocationProp prop = plain(0);
	CUmemGenericAllocationHandle handle = 0;

	SAY("rc", cuMemCreate(&handle, n_bytes, &prop, 0));
	return handle;
}

static CUdeviceptr
reserve(size_t n_bytes)
{
	CUdeviceptr ptr = 0;

	SAY("rc", cuMemAddressReserve(&ptr, n_bytes, 0, 0, 0));
	return ptr;
}

static void
map(CUdeviceptr ptr, size_t n_bytes, CUmemGenericAllocationHandle handle)
{
	CUmemAccessDesc access = { { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
				   CU_MEM_ACCESS_FLAGS_PROT_READWRITE };

	SAY("rc", cuMemMap(ptr, n_bytes, 0, handle, 0));
	SAY("rc", cuMemSetAccess(ptr, n_bytes, &access, 1));
}

static unsigned long long
attribute(CUdeviceptr ptr, int which)
{
	unsigned long long value = 0;

	SAY("rc", cuPointerGetAttribute(&value, (CUpointer_attribute)which, ptr));
	return value;
}

/* The calls of the guide's program, with no context current until there is work. */
static int
life(void)
{
	CUmemAllocationProp prop = plain(0), got;
	CUmemGenericAllocationHandle handle, again = 0;
	unsigned long long access = 0;
	CUdeviceptr ptr, base = 0;
	CUmemLocation here = { CU_MEM_LOCATION_TYPE_DEVICE, 0 };
	size_t least = 0, best = 0, n = 0;
	unsigned word = 0;
	int supported = 0;

	SAY("early", cuMemCreate(&handle, GRAIN, &prop, 0));
	SAY("rc", cuInit(0));
	SAY("rc", cuDeviceGetAttribute(&supported, (CUdevice_attribute)102, 0));
	SAY("supported", supported);
	SAY("rc", cuMemGetAllocationGranularity(&least, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	SAY("rc",
	    cuMemGetAllocationGranularity(&best, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
	SAY("granularity", least == GRAIN && best == GRAIN);
	handle = create(2 * GRAIN);
	ptr = reserve(8 * GRAIN);
	map(ptr + GRAIN, 2 * GRAIN, handle);
	SAY("rc", cuMemGetAccess(&access, &here, ptr + GRAIN));
	SAY("access", access);
	SAY("rc", cuMemGetAllocationPropertiesFromHandle(&got, handle));
	SAY("props", !memcmp(&got, &prop, sizeof(prop)));
	SAY("rc", cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(ptr + GRAIN + 77)));
	SAY("same", again == handle);
	begin();
	SAY("rc", launch(kernel("sim_fill"), NULL, ptr + GRAIN, 2 * GRAIN / 4, 5, 0));
	SAY("rc", cuMemcpyDtoH_v2(&word, ptr + 3 * GRAIN - 4, 4));
	SAY("word", word);
	SAY("rc", cuMemGetAddressRange_v2(&base, &n, ptr + 2 * GRAIN));
	SAY("mapping", base == ptr + GRAIN && n == 2 * GRAIN);
	SAY("no_mapping", cuMemGetAddressRange_v2(&base, &n, ptr));
	SAY("range", attribute(ptr + GRAIN, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR) == ptr &&
			     attribute(ptr + GRAIN, CU_POINTER_ATTRIBUTE_RANGE_SIZE) == 8 * GRAIN);
	SAY("context", attribute(ptr + GRAIN, CU_POINTER_ATTRIBUTE_CONTEXT));
	SAY("ipc", attribute(ptr + GRAIN, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE));
	SAY("types", attribute(ptr + GRAIN, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES));
	SAY("free", cuMemFree_v2(ptr + GRAIN));
	SAY("rc", cuMemRelease(handle));
	SAY("rc", cuMemRelease(again));
	SAY("released", cuMemRelease(handle));
	SAY("rc", cuCtxDestroy_v2(context));
	SAY("mapped_still", cuMemAddressFree(ptr, 8 * GRAIN));
	SAY("rc", cuMemUnmap(ptr + GRAIN, 2 * GRAIN));
	SAY("rc", cuMemAddressFree(ptr, 8 * GRAIN));
	return 0;
}

static int
refusals(void)
{
	CUmemAllocationProp prop = plain(0), wrong = plain(0);
	CUmemGenericAllocationHandle handle = 0;
	CUmemAccessDesc access = { { CU_MEM_LOCATION_TYPE_DEVICE, 9 },
				   CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUdeviceptr ptr;
	int fd = -1;

	begin();
	ptr = reserve(2 * GRAIN);
	SAY("odd", cuMemCreate(&handle, GRAIN + 512, &prop, 0));
	SAY("flags", cuMemCreate(&handle, GRAIN, &prop, 1));
	SAY("nowhere", cuMemCreate(NULL, GRAIN, &prop, 0));
	wrong.location.id = 9;
	SAY("device", cuMemCreate(&handle, GRAIN, &wrong, 0));
	wrong = plain(0);
	wrong.location.type = (CUmemLocationType)3;
	SAY("host", cuMemCreate(&handle, GRAIN, &wrong, 0));
	wrong = plain(0);
	wrong.requestedHandleTypes = (CUmemAllocationHandleType)8;
	SAY("fabric", cuMemCreate(&handle, GRAIN, &wrong, 0));
	wrong = plain(0);
	wrong.type = (CUmemAllocationType)0;
	SAY("type", cuMemCreate(&handle, GRAIN, &wrong, 0));
	SAY("much", cuMemCreate(&handle, (size_t)1 << 40, &prop, 0));
	handle = create(GRAIN);
	SAY("no_handle", cuMemMap(ptr, GRAIN, 0, handle + 8, 0));
	SAY("offset", cuMemMap(ptr, GRAIN, GRAIN, handle, 0));
	SAY("unreserved", cuMemMap(ptr + 64 * (size_t)GRAIN, GRAIN, 0, handle, 0));
	map(ptr, GRAIN, handle);
	SAY("twice", cuMemMap(ptr, GRAIN, 0, handle, 0));
	SAY("gap", cuMemUnmap(ptr, 2 * GRAIN));
	SAY("access_device", cuMemSetAccess(ptr, GRAIN, &access, 1));
	SAY("access_nobody", cuMemSetAccess(ptr, GRAIN, &access, 0));
	SAY("export_type",
	    cuMemExportToShareableHandle(&fd, handle, (CUmemAllocationHandleType)8, 0));
	SAY("import", cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)0,
						     (CUmemAllocationHandleType)FD));
	SAY("unmapped", cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)(ptr + GRAIN)));
	return 0;
}

/* Two streams and two mappings of one granule; `how` says what the program gets right. */
static int
order(const char *how)
{
	CUmemGenericAllocationHandle handle;
	CUstream stream[2];
	CUdeviceptr ptr;
	CUevent event;

	begin();
	handle = create(GRAIN);
	ptr = reserve(2 * GRAIN);
	map(ptr, GRAIN, handle);
	for (int i = 0; i < 2; i++)
		SAY("rc", cuStreamCreate(&stream[i], 1));
	SAY("rc", cuEventCreate(&event, 2));
	SAY("rc", launch(kernel("sim_fill"), stream[0], ptr, 1024, 1, 0));
	SAY("rc", cuEventRecord(event, stream[0]));
	map(ptr + GRAIN, GRAIN, handle);
	if (strcmp(how, "alias-unordered") != 0)
		SAY("rc", cuStreamWaitEvent(stream[1], event, 0));
	SAY("rc", launch(kernel("sim_fill"), stream[1], ptr + GRAIN, 1024, 2, 0));
	if (strcmp(how, "unmapped-early") != 0)
		SAY("rc", cuEventSynchronize(event));
	SAY("rc", cuMemUnmap(ptr, GRAIN)); /* the new place is in use still */
	SAY("end", cuCtxSynchronize());
	return 0;
}

/* ------------------------------------------------------ another process --- */
static void
fd_send(int to, int fd)
{
	char byte = 0, room[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec iov = { &byte, 1 };
	struct msghdr message = { .msg_iov = &iov,
				  .msg_iovlen = 1,
				  .msg_control = room,
				  .msg_controllen = sizeof(room) };
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(header), &fd, sizeof(fd));
	SAY("sent", sendmsg(to, &message, 0));
}

static int
fd_receive(int from)
{
	char byte, room[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec iov = { &byte, 1 };
	struct msghdr message = { .msg_iov = &iov,
				  .msg_iovlen = 1,
				  .msg_control = room,
				  .msg_controllen = sizeof(room) };
	int fd = -1;

	if (recvmsg(from, &message, 0) == 1 && CMSG_FIRSTHDR(&message))
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
	return fd;
}

static int
importer(int from)
{
	CUmemGenericAllocationHandle handle = 0;
	CUdeviceptr ptr;
	unsigned word = 0;
	int fd = fd_receive(from), rc;

	begin();
	rc = cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
					    (CUmemAllocationHandleType)FD);
	SAY("imported", rc);
	if (rc)
		return 0;
	ptr = reserve(GRAIN);
	map(ptr, GRAIN, handle);
	SAY("rc", cuMemcpyDtoH_v2(&word, ptr + GRAIN - 4, 4));
	SAY("theirs", word);
	SAY("rc", cuMemsetD32_v2(ptr, 77, 1));
	SAY("rc", cuCtxSynchronize());
	SAY("rc", cuMemUnmap(ptr, GRAIN));
	SAY("rc", cuMemRelease(handle));
	return 0;
}

/* A child that was there before cuInit gets the memory by its descriptor. */
static int
share(void)
{
	CUmemGenericAllocationHandle handle;
	int ends[2], fd = -1, status = 1;
	unsigned word = 0;
	CUdeviceptr ptr;
	pid_t pid;

	SAY("pair", socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
	pid = fork();
	if (!pid)
		exit(importer(ends[1]));
	begin();
	handle = create(GRAIN);
	ptr = reserve(GRAIN);
	map(ptr, GRAIN, handle);
	SAY("rc", cuMemsetD32_v2(ptr, 55, GRAIN / 4));
	SAY("rc", cuCtxSynchronize());
	SAY("rc", cuMemExportToShareableHandle(&fd, handle, (CUmemAllocationHandleType)FD, 0));
	fd_send(ends[0], fd);
	SAY("child", waitpid(pid, &status, 0) == pid ? status : -1);
	SAY("rc", cuMemcpyDtoH_v2(&word, ptr, 4));
	SAY("ours", word);
	return 0;
}

static int
none(void)
{
	CUmemAllocationProp prop = plain(0);
	CUmemGenericAllocationHandle handle;
	CUdeviceptr ptr;
	size_t granularity;
	int supported = 1;

	begin();
	SAY("rc", cuDeviceGetAttribute(&supported, (CUdevice_attribute)102, 0));
	SAY("supported", supported);
	SAY("granularity",
	    cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	SAY("create", cuMemCreate(&handle, GRAIN, &prop, 0));
	SAY("reserve", cuMemAddressReserve(&ptr, GRAIN, 0, 0, 0));
	return 0;
}

int
probe_vmm(int argc, char **argv)
{
	if (!strcmp(argv[0], "life"))
		return life();
	if (!strcmp(argv[0], "refusals"))
		return refusals();
	if (!strcmp(argv[0], "none"))
		return none();
	if (!strcmp(argv[0], "share"))
		return share();
	return order(argv[0]);
}
