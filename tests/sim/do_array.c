/* SPDX-License-Identifier: MIT */
/*
 * Bodies: arrays. One is device memory, row behind row, whose address nobody is told; to the race
 * oracle it is memory like any other. A CUarray is looked up in the list of live ones before it is
 * believed. Arrays die with their context, which shows in the id of their memory.
 */
#include <pthread.h>
#include <stdlib.h>

#include "tests/sim/bodies.h"
#include "tests/sim/call.h"
#include "tests/sim/copies.h"

enum {
	FLAGS_BUILT = 0x3f, /* layered to color attachment: nothing that concerns copies */
};

struct array {
	struct array *next;
	CUdeviceptr base;
	unsigned long long id; /* of the memory */
	size_t element;        /* bytes */
	CUDA_ARRAY3D_DESCRIPTOR desc;
};

static struct array *arrays;                                    /* all made and not destroyed */
static pthread_mutex_t arrays_lock = PTHREAD_MUTEX_INITIALIZER; /* around the list */

/* A copy of its record. INVALID_HANDLE: none, or its context is gone. */
static int
array_look(CUarray handle, struct array *ret_array)
{
	struct sim_mem_info info;
	struct array *array;
	bool found;

	pthread_mutex_lock(&arrays_lock);
	array = arrays;
	while (array && array != (struct array *)(void *)handle)
		array = array->next;
	if (array)
		*ret_array = *array;
	pthread_mutex_unlock(&arrays_lock);
	found = array && !sim_mem_lookup(ret_array->base, &info) && info.id == ret_array->id;
	if (found)
		return 0;
	simb_misuse(CUDA_ERROR_INVALID_HANDLE, "not an array");
	return CUDA_ERROR_INVALID_HANDLE;
}

static size_t
format_bytes(CUarray_format format)
{
	switch (format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
		return 1;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		return 2;
	case CU_AD_FORMAT_UNSIGNED_INT32:
	case CU_AD_FORMAT_SIGNED_INT32:
	case CU_AD_FORMAT_FLOAT:
		return 4;
	}
	return 0;
}

static size_t
at_least_one(size_t n)
{
	return n ? n : 1;
}

/* Bytes of the whole array; false: it has none, or too many. */
static bool
array_bytes(const struct array *array, size_t *ret_n_bytes)
{
	size_t n = array->element;

	if (!array->desc.Width || __builtin_mul_overflow(n, array->desc.Width, &n) ||
	    __builtin_mul_overflow(n, at_least_one(array->desc.Height), &n) ||
	    __builtin_mul_overflow(n, at_least_one(array->desc.Depth), &n))
		return false;
	*ret_n_bytes = n;
	return true;
}

static int
array_make(struct array *array)
{
	struct sim_mem_info info;
	size_t n_bytes;
	int rc;

	if (!array_bytes(array, &n_bytes))
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "no such size of an array");
	rc = sim_mem_alloc(n_bytes, &array->base);
	if (!rc)
		rc = sim_mem_lookup(array->base, &info);
	if (rc)
		return rc;
	array->id = info.id;
	pthread_mutex_lock(&arrays_lock);
	array->next = arrays;
	arrays = array;
	pthread_mutex_unlock(&arrays_lock);
	return 0;
}

int
simb_do_cuArray3DCreate_v2(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray)
{
	struct array *array;
	int rc;

	if (!pHandle || !pAllocateArray)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "no description, or no place for it");
	if (pAllocateArray->Flags & ~(unsigned)FLAGS_BUILT)
		return simb_unbuilt("an array with these flags");
	if (!format_bytes(pAllocateArray->Format))
		return simb_unbuilt("an array of this format");
	if (pAllocateArray->NumChannels != 1 && pAllocateArray->NumChannels != 2 &&
	    pAllocateArray->NumChannels != 4)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "1, 2 or 4 channels");
	array = calloc(1, sizeof(*array));
	if (!array)
		return CUDA_ERROR_OUT_OF_MEMORY;
	array->desc = *pAllocateArray;
	array->element = format_bytes(pAllocateArray->Format) * pAllocateArray->NumChannels;
	rc = array_make(array);
	if (rc) {
		free(array);
		return rc;
	}
	*pHandle = (CUarray)(void *)array;
	return 0;
}

int
simb_do_cuArrayCreate_v2(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray)
{
	CUDA_ARRAY3D_DESCRIPTOR desc = { 0 };

	if (!pAllocateArray)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "no description");
	desc.Width = pAllocateArray->Width;
	desc.Height = pAllocateArray->Height;
	desc.Format = pAllocateArray->Format;
	desc.NumChannels = pAllocateArray->NumChannels;
	return simb_do_cuArray3DCreate_v2(pHandle, &desc);
}

/* Waits for what uses it, as freeing memory does. */
int
simb_do_cuArrayDestroy(CUarray hArray)
{
	struct array seen = { 0 }, *array = (struct array *)(void *)hArray, **link = &arrays;
	int rc = array_look(hArray, &seen);

	if (!rc)
		rc = sim_mem_free(seen.base);
	if (rc)
		return rc;
	pthread_mutex_lock(&arrays_lock);
	while (*link && *link != array)
		link = &(*link)->next;
	if (*link)
		*link = array->next;
	pthread_mutex_unlock(&arrays_lock);
	free(array);
	return 0;
}

int
simb_do_cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *pArrayDescriptor, CUarray hArray)
{
	struct array array = { 0 };
	int rc;

	if (!pArrayDescriptor) {
		simb_misuse(CUDA_ERROR_INVALID_VALUE, "no place for it");
		return CUDA_ERROR_INVALID_VALUE;
	}
	rc = array_look(hArray, &array);
	if (!rc)
		*pArrayDescriptor = array.desc;
	return rc;
}

int
simb_do_cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *pArrayDescriptor, CUarray hArray)
{
	CUDA_ARRAY3D_DESCRIPTOR desc = { 0 };
	int rc;

	if (!pArrayDescriptor) {
		simb_misuse(CUDA_ERROR_INVALID_VALUE, "no place for it");
		return CUDA_ERROR_INVALID_VALUE;
	}
	rc = simb_do_cuArray3DGetDescriptor_v2(&desc, hArray);
	if (!rc)
		*pArrayDescriptor = (CUDA_ARRAY_DESCRIPTOR){ desc.Width, desc.Height, desc.Format,
							     desc.NumChannels };
	return rc;
}

size_t
simb_array_element(CUarray handle)
{
	struct array array = { 0 };

	return array_look(handle, &array) ? 0 : array.element;
}

static bool
inside(size_t from, size_t n, size_t limit)
{
	return from <= limit && n <= limit - from;
}

int
simb_array_area(const struct simb_operand *from, struct sim_area *area)
{
	size_t row, rows, slices;
	struct array array = { 0 };
	int rc = array_look(from->array, &array);

	if (rc)
		return rc;
	row = array.desc.Width * array.element;
	rows = at_least_one(array.desc.Height);
	slices = at_least_one(array.desc.Depth);
	if (from->x % array.element || area->width % array.element ||
	    !inside(from->x, area->width, row) || !inside(from->y, area->rows, rows) ||
	    !inside(from->z, area->slices, slices))
		return simb_misuse(CUDA_ERROR_INVALID_VALUE,
				   "outside the array, or no whole elements");
	area->pitch = row;
	area->slice = row * rows;
	area->addr = array.base + from->x + from->y * row + from->z * area->slice;
	return 0;
}
