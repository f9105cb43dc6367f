/* SPDX-License-Identifier: MIT */
/*
 * Roads by which work that we never see reaches our memory: private driver tables, and access for
 * other contexts and other processes' memory.
 *
 * The CUDA runtime asks for private tables of the driver itself. Their ids are constants in
 * libcudart (tests/abi/test_export_tables.py compares), and what is publicly known of them loads
 * modules, keeps values of a context or a thread, calls tools back and checks the driver: none of
 * it takes a stream. Any other table may submit work.
 *
 * A table of the runtime's is trusted whoever asks for it. It has the same functions for everybody,
 * and its holder can pass it on. Nor could the runtime be told from others: it is linked into any
 * program or library, mostly without a symbol left, and one that is not recognised would restrict
 * nearly every program to finished memory.
 */
#include <string.h>

#include "allocator/order/order.h"
#include "shim/hooks/hook.h"
#include "shim/state/finished_only.h"
#include "shim/track/contexts.h"

static const unsigned char runtime_tables[][16] = {
	{ 0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d,
	  0xf9 },
	{ 0x42, 0xd8, 0x5a, 0x81, 0x23, 0xf6, 0xcb, 0x47, 0x82, 0x98, 0xf6, 0xe7, 0x8a, 0x3a, 0xec,
	  0xdc },
	{ 0xa0, 0x94, 0x79, 0x8c, 0x2e, 0x74, 0x2e, 0x74, 0x93, 0xf2, 0x08, 0x00, 0x20, 0x0c, 0x0a,
	  0x66 },
	{ 0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11, 0xa8, 0xc3, 0x68, 0xf3, 0x55, 0xd8, 0x95,
	  0x93 },
	{ 0xd4, 0x08, 0x20, 0x55, 0xbd, 0xe6, 0x70, 0x4b, 0x8d, 0x34, 0xba, 0x12, 0x3c, 0x66, 0xe1,
	  0xf2 },
	{ 0x26, 0x3e, 0x88, 0x60, 0x7c, 0xd2, 0x61, 0x43, 0x92, 0xf6, 0xbb, 0xd5, 0x00, 0x6d, 0xfa,
	  0x7e },
	{ 0xf8, 0xcf, 0xf9, 0x51, 0x21, 0x46, 0x8b, 0x4e, 0xb9, 0xe2, 0xfb, 0x46, 0x9e, 0x7c, 0x0d,
	  0xd9 },
};

static bool
is_runtime_table(const CUuuid *id)
{
	for (size_t i = 0; i < sizeof(runtime_tables) / sizeof(runtime_tables[0]); i++)
		if (!memcmp(id->bytes, runtime_tables[i], sizeof(runtime_tables[i])))
			return true;
	return false;
}

CUresult
cuGetExportTable(const void **ppExportTable, const CUuuid *pExportTableId)
{
	CA_HOOK_REAL(real, cuGetExportTable);
	struct ca_process *process = ca_hook_process();
	CUresult rc = CA_INSIDE(real->cuGetExportTable(ppExportTable, pExportTableId));

	if (rc == CUDA_SUCCESS && process && pExportTableId && !is_runtime_table(pExportTableId))
		ca_fallback(process, NULL, CA_REASON_PRIVATE_TABLE);
	return rc;
}

/* Kernels of the current context will see the peer's memory. Disabling ends no running work, so
 * it changes nothing. */
CUresult
cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags)
{
	CA_HOOK_REAL(real, cuCtxEnablePeerAccess);
	struct ca_process *process = ca_hook_process();
	struct ca_context *peer = process ? ca_context_find(peerContext) : NULL;

	/* before the call: another thread may use the access as soon as the driver has granted it
	 */
	if (process)
		ca_fallback(process, peer ? atomic_load(&peer->space) : NULL,
			    CA_REASON_PEER_ACCESS);
	return CA_INSIDE(real->cuCtxEnablePeerAccess(peerContext, Flags));
}

/* Opening memory of another process may give peer access between our own contexts (cuda.h,
 * cuIpcOpenMemHandle: CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS). */
#define OPEN_MEMORY(symbol)                                                                        \
	CUresult symbol(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)             \
	{                                                                                          \
		CA_HOOK_REAL(real, symbol);                                                        \
		struct ca_process *process = ca_hook_process();                                    \
                                                                                                   \
		if (process)                                                                       \
			ca_fallback(process, NULL, CA_REASON_IPC);                                 \
		return CA_INSIDE(real->symbol(pdptr, handle, Flags));                              \
	}
OPEN_MEMORY(cuIpcOpenMemHandle)
OPEN_MEMORY(cuIpcOpenMemHandle_v2)
