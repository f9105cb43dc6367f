/* SPDX-License-Identifier: MIT */
/*
 * The view that others have of a block: each answers as an allocation of its own, though it may
 * share a segment.
 *
 * Ranges, sizes and buffer ids are ours; everything else the driver says of the segment holds for
 * the block. A cached (freed) block is unknown memory: the question is put to the driver with an
 * address that it does not know, so that the answer is the native one. A call that exports an
 * allocation for its life retires the segment (it is never handed out again); a handle that would
 * name the whole segment although the block is only a part of it is refused.
 *
 * SYNC_MEMOPS is each block's own, too, but to the driver it is the segment's: the first block that
 * sets it sets it there, until the segment is back at the driver. To clear it would race with
 * another thread that sets it for a neighbour. A program that sets it is about to show the memory
 * to a device, so the block's range is handed out finished only from then on, as where it is
 * registered.
 */
#include <stdatomic.h>

#include "allocator/order/order.h"
#include "allocator/policy/policy.h"
#include "config/log.h"
#include "shim/driver/vmm.h"
#include "shim/hooks/hook.h"
#include "shim/hooks/hook_told.h"
#include "shim/pinned/pinned.h"
#include "shim/track/contexts.h"

/* No driver knows this address as an allocation. */
static const char unknown_memory;

/* Serials of page-locked memory lie apart. */
#define PINNED_SERIAL (1ull << 62)

/* Page-locked memory is no block, but its range and its buffer id are ours to answer as well. */
static int
find_pinned(CUdeviceptr pointer, struct ca_block_info *ret_info)
{
	struct ca_pinned_view view;
	int rc = atomic_load(&ca_pinned_on) ? ca_pinned_look_up(pointer, &view) : -ENOENT;

	if (!rc)
		*ret_info = (struct ca_block_info){
			.address = view.address,
			.requested_bytes = view.requested,
			.block_bytes = view.requested,
			.serial = PINNED_SERIAL | view.serial,
			.live = true,
			.whole_segment = true,
			.sync_memops = true, /* the driver's own answer stands */
		};
	return rc;
}

/* Serials of stream-ordered memory lie apart, too. */
#define TOLD_SERIAL (1ull << 61)

static int
find_told(CUdeviceptr pointer, struct ca_block_info *ret_info)
{
	struct ca_told_info told;

	if (!ca_told_holds(pointer, &told))
		return find_pinned(pointer, ret_info);
	*ret_info = (struct ca_block_info){
		.address = told.address,
		.requested_bytes = told.requested,
		.block_bytes = told.bytes,
		.serial = TOLD_SERIAL | told.serial,
		.live = told.live,
		.sync_memops = true, /* the driver's own answer stands */
	};
	return told.live && pointer - told.address < told.requested ? 0 : -ESTALE;
}

/* Ours and live: 0 and *ret_info. Ours and not live: -ESTALE.
 * Not ours, or nothing to virtualise: -ENOENT. */
static int
find_block(CUdeviceptr pointer, struct ca_block_info *ret_info)
{
	struct ca_process *process = ca_hook_active_process();
	CA_KEEP_ERRNO;

	if (!process || !pointer)
		return -ENOENT;
	if (ca_context_lookup(process->heap, pointer, ret_info))
		return find_told(pointer, ret_info);
	if (ret_info->foreign)
		return -ENOENT;
	if (!ret_info->live || pointer - ret_info->address >= ret_info->requested_bytes)
		return -ESTALE;
	return 0;
}

/* A device that is no stream is about to get at the block: nothing that used the memory before may
 * still run. */
static void
settle(const struct ca_block_info *info)
{
	struct ca_process *process = ca_process();
	CA_KEEP_ERRNO;

	if (process)
		(void)ca_register(process->heap, info->address, info->block_bytes);
}

static CUdeviceptr
unknown_pointer(void)
{
	return (CUdeviceptr)(uintptr_t)&unknown_memory;
}

static void
retire(CUdeviceptr pointer)
{
	struct ca_process *process = ca_process();
	CA_KEEP_ERRNO;

	if (process)
		(void)ca_retire(process->heap, pointer);
	ca_pinned_expose(pointer, 1);
}

/* The next memory can be exported. */
static void
stop_mapping(void)
{
	struct ca_process *process = ca_process();
	CA_KEEP_ERRNO;

	ca_vmm_stop();
	if (process)
		ca_expand_end(process->heap);
}

static void
warn_export(const char *what, const struct ca_block_info *info)
{
	static atomic_flag warned = ATOMIC_FLAG_INIT;

	if (atomic_flag_test_and_set(&warned))
		return;
	if (info->mapped)
		ca_warn("%s of memory of expandable_segments fails; from now on segments are as "
			"ever. hint: run the exporting program with expandable_segments:False",
			what);
	else
		ca_warn("%s of a block that shares its segment is refused in this version. hint: "
			"CACHEALLOC_CONF=min_size:10M leaves blocks below 10 MiB to the driver, "
			"which exports them (a larger N where larger ones are exported); or run "
			"the exporting program with CACHEALLOC_DISABLE=1",
			what);
}

CUresult
cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
	CA_HOOK_REAL(real, cuMemGetAddressRange_v2);
	struct ca_block_info info;
	int rc = find_block(dptr, &info);

	if (rc == -ENOENT)
		return CA_INSIDE(real->cuMemGetAddressRange_v2(pbase, psize, dptr));
	if (rc)
		return CA_INSIDE(real->cuMemGetAddressRange_v2(pbase, psize, unknown_pointer()));
	if (pbase)
		*pbase = info.address;
	if (psize)
		*psize = info.requested_bytes;
	return CUDA_SUCCESS;
}

/* Serials of our allocations, far above the driver's small ids. */
static unsigned long long
buffer_id(const struct ca_block_info *info)
{
	return 1ull << 63 | info->serial;
}

/* Writes what is ours to answer. */
static void
patch_attribute(void *data, CUpointer_attribute attribute, const struct ca_block_info *info)
{
	if (!data)
		return;
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		*(CUdeviceptr *)data = info->address;
		break;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*(size_t *)data = info->requested_bytes;
		break;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		*(unsigned long long *)data = buffer_id(info);
		break;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		if (!info->whole_segment)
			*(int *)data = 0;
		break;
	case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
		retire(info->address); /* the tokens name the driver's allocation for its life */
		break;
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		if (info->mapped) /* mappings are of no context */
			*(CUcontext *)data = ((const struct ca_context *)info->context)->handle;
		break;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		if (!info->sync_memops) /* the driver wrote 0 or 1, in an unknown width */
			*(unsigned char *)data = 0;
		break;
	default:
		break;
	}
}

/* Questions of those who hand the memory to other devices. */
static void
settle_for(CUpointer_attribute attribute, const struct ca_block_info *info)
{
	if (attribute == CU_POINTER_ATTRIBUTE_BUFFER_ID ||
	    attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS)
		settle(info);
}

CUresult
cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	CA_HOOK_REAL(real, cuPointerGetAttribute);
	struct ca_block_info info;
	int found = find_block(ptr, &info);
	CUresult rc;

	if (found == 0)
		settle_for(attribute, &info);
	rc = CA_INSIDE(real->cuPointerGetAttribute(data, attribute,
						   found == -ESTALE ? unknown_pointer() : ptr));

	if (rc == CUDA_SUCCESS && found == 0)
		patch_attribute(data, attribute, &info);
	return rc;
}

enum { ATTRIBUTES_MAX = 64 };

/* The driver has not checked the count yet: of too many attributes none is looked at. */
static void
settle_for_any(unsigned count, const CUpointer_attribute *attributes,
	       const struct ca_block_info *info)
{
	if (count > ATTRIBUTES_MAX)
		settle(info);
	for (unsigned i = 0; count <= ATTRIBUTES_MAX && i < count; i++)
		settle_for(attributes[i], info);
}

static bool
is_patched(CUpointer_attribute attribute, const struct ca_block_info *info)
{
	return (attribute == CU_POINTER_ATTRIBUTE_CONTEXT && info->mapped) ||
	       attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR ||
	       attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE ||
	       attribute == CU_POINTER_ATTRIBUTE_BUFFER_ID ||
	       attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
}

/* The bytes that the driver has written: no value of it has bytes like those before. */
static void
copy_written(unsigned char *data, const unsigned long long *place, unsigned long long untouched)
{
	const unsigned char *now = (const unsigned char *)place;
	const unsigned char *before = (const unsigned char *)&untouched;

	for (unsigned i = 0; i < sizeof(untouched); i++)
		if (now[i] != before[i])
			data[i] = now[i];
}

/*
 * A call that fails may have answered some questions before. So what is ours to answer goes to a
 * place of ours, and from there to the program only if the driver wrote there.
 */
static CUresult
get_attributes(const struct ca_real *real, unsigned count, CUpointer_attribute *attributes,
	       void **data, const struct ca_block_info *info, CUdeviceptr ptr)
{
	const unsigned long long untouched = 0xa5c3f00d5eed9e37ull;
	unsigned long long places[ATTRIBUTES_MAX];
	void *targets[ATTRIBUTES_MAX];
	CUresult rc;

	for (unsigned i = 0; i < count; i++) {
		places[i] = untouched;
		targets[i] = data[i] && is_patched(attributes[i], info) ? &places[i] : data[i];
	}
	rc = CA_INSIDE(real->cuPointerGetAttributes(count, attributes, targets, ptr));
	for (unsigned i = 0; i < count; i++) {
		/* cppcheck-suppress uninitvar ; the loop above has filled as many */
		if (is_patched(attributes[i], info) ? places[i] == untouched : rc != CUDA_SUCCESS)
			continue;
		if (attributes[i] == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
			copy_written(data[i], &places[i], untouched);
		patch_attribute(data[i], attributes[i], info);
	}
	return rc;
}

CUresult
cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes, void **data,
		       CUdeviceptr ptr)
{
	CA_HOOK_REAL(real, cuPointerGetAttributes);
	struct ca_block_info info;
	int found = find_block(ptr, &info);

	if (found == 0 && attributes)
		settle_for_any(numAttributes, attributes, &info);
	if (found == 0 && attributes && data && numAttributes <= ATTRIBUTES_MAX)
		return get_attributes(real, numAttributes, attributes, data, &info, ptr);
	CUresult rc = CA_INSIDE(real->cuPointerGetAttributes(
		numAttributes, attributes, data, found == -ESTALE ? unknown_pointer() : ptr));

	if (rc != CUDA_SUCCESS || found || !attributes || !data)
		return rc;
	for (unsigned i = 0; i < numAttributes; i++)
		patch_attribute(data[i], attributes[i], &info);
	return rc;
}

static void
note_sync_memops(CUdeviceptr pointer, bool is_set)
{
	struct ca_process *process = ca_process();
	CA_KEEP_ERRNO;

	if (process)
		(void)ca_note_sync_memops(process->heap, pointer, is_set);
}

/*
 * For our block. To clear, the driver is asked the same question by reading: so errors that have
 * nothing to do with the value are its own. The range is settled first, and noted even where the
 * driver then refuses.
 */
static CUresult
set_sync_memops(const struct ca_real *real, const unsigned *value, CUdeviceptr ptr,
		const struct ca_block_info *info)
{
	unsigned long long ignored;
	bool is_set = *value;
	CUresult rc;

	if (is_set)
		settle(info);
	if (is_set || !real->cuPointerGetAttribute)
		rc = CA_INSIDE(
			real->cuPointerSetAttribute(value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptr));
	else
		rc = CA_INSIDE(real->cuPointerGetAttribute(&ignored,
							   CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptr));
	if (rc == CUDA_SUCCESS)
		note_sync_memops(ptr, is_set);
	return rc;
}

CUresult
cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	CA_HOOK_REAL(real, cuPointerSetAttribute);
	struct ca_block_info info;
	int found = find_block(ptr, &info);
	CUresult rc;

	if (found == 0 && value && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS &&
	    !(info.serial & (PINNED_SERIAL | TOLD_SERIAL)))
		return set_sync_memops(real, value, ptr, &info);
	if (found == 0)
		settle(&info);
	rc = CA_INSIDE(real->cuPointerSetAttribute(value, attribute,
						   found == -ESTALE ? unknown_pointer() : ptr));

	if (rc == CUDA_SUCCESS && found == 0)
		retire(ptr);
	return rc;
}

/* Mapped memory: the driver is asked, or nobody. */
#define EXPORT_BLOCK(symbol, params, args, refusal, asks)                                          \
	CUresult symbol params                                                                     \
	{                                                                                          \
		CA_HOOK_REAL(real, symbol);                                                        \
		struct ca_block_info info;                                                         \
		int found = find_block(dptr, &info);                                               \
		CUresult rc;                                                                       \
                                                                                                   \
		if (found == -ESTALE)                                                              \
			dptr = unknown_pointer();                                                  \
		if (found == 0 && !info.whole_segment) {                                           \
			if (info.mapped)                                                           \
				stop_mapping();                                                    \
			warn_export(#symbol, &info);                                               \
			if (!info.mapped || !(asks))                                               \
				return refusal;                                                    \
		}                                                                                  \
		if (found == 0)                                                                    \
			settle(&info);                                                             \
		rc = CA_INSIDE(real->symbol args);                                                 \
		if (rc == CUDA_SUCCESS && found == 0)                                              \
			retire(dptr);                                                              \
		return rc;                                                                         \
	}
EXPORT_BLOCK(cuIpcGetMemHandle, (CUipcMemHandle * pHandle, CUdeviceptr dptr), (pHandle, dptr),
	     CUDA_ERROR_INVALID_VALUE, true)
EXPORT_BLOCK(cuMemGetHandleForAddressRange,
	     (void *handle, CUdeviceptr dptr, size_t size, CUmemRangeHandleType handleType,
	      unsigned long long flags),
	     (handle, dptr, size, handleType, flags), CUDA_ERROR_NOT_SUPPORTED, false)
