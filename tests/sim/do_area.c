/* SPDX-License-Identifier: MIT */
/*
 * Bodies: copies and sets of more than one row, and those that name an array. Every description
 * becomes the three-dimensional one, and that becomes two areas.
 */
#include <string.h>

#include "tests/sim/call.h"
#include "tests/sim/copies.h"

static int
invalid(const char *what)
{
	simb_misuse(CUDA_ERROR_INVALID_VALUE, what);
	return CUDA_ERROR_INVALID_VALUE;
}

static int
area_read(const struct simb_operand *from, struct sim_area *area)
{
	size_t pitch = from->pitch ? from->pitch : from->x + area->width;
	size_t height = from->height ? from->height : from->y + area->rows;

	if (from->type == CU_MEMORYTYPE_ARRAY)
		return simb_array_area(from, area);
	if (from->type < CU_MEMORYTYPE_HOST || from->type > CU_MEMORYTYPE_UNIFIED)
		return invalid("no such type of memory");
	if (pitch < from->x + area->width)
		return invalid("the pitch is less than a row");
	if (area->slices > 1 && height < from->y + area->rows)
		return invalid("the height is less than a slice");
	area->pitch = pitch;
	area->slice = pitch * height;
	area->addr = from->address + from->x + from->y * pitch + from->z * area->slice;
	return 0;
}

static bool
is_device(const struct simb_operand *operand)
{
	return operand->type == CU_MEMORYTYPE_DEVICE || operand->type == CU_MEMORYTYPE_ARRAY;
}

static int
operands_read(const struct simb_operand *dst, const struct simb_operand *src,
	      const struct sim_area *size, struct simb_copy *ret_copy)
{
	struct simb_copy copy = { *size, *size, SIM_COPY_ANY };
	int rc = area_read(dst, &copy.dst);

	if (!rc)
		rc = area_read(src, &copy.src);
	if (is_device(dst))
		copy.kind = is_device(src) ? SIM_COPY_DTOD : SIM_COPY_HTOD;
	else if (is_device(src))
		copy.kind = SIM_COPY_DTOH;
	if (!rc)
		*ret_copy = copy;
	return rc;
}

int
simb_copy_operands(const struct simb_operand *dst, const struct simb_operand *src,
		   const struct sim_area *size, CUstream stream, bool sync)
{
	struct simb_copy copy = { 0 };
	int rc = operands_read(dst, src, size, &copy);

	return rc ? rc : sim_copy_area(&copy.dst, &copy.src, copy.kind, simb_stream(stream), sync);
}

int
simb_copy_line(struct simb_operand dst, struct simb_operand src, size_t n_bytes, CUstream stream,
	       bool sync)
{
	struct sim_area size = sim_line(0, n_bytes);

	return simb_copy_operands(&dst, &src, &size, stream, sync);
}

static uint64_t
address(int type, const void *host, CUdeviceptr device)
{
	return type == CU_MEMORYTYPE_HOST ? (uintptr_t)host : device;
}

int
simb_copy_read(const CUDA_MEMCPY3D *copy, struct simb_copy *ret_copy)
{
	struct sim_area size = { 0 };
	struct simb_operand dst, src;

	if (!copy || copy->srcLOD || copy->dstLOD)
		return invalid("no description, or a level of detail");
	dst = (struct simb_operand){
		copy->dstMemoryType, address(copy->dstMemoryType, copy->dstHost, copy->dstDevice),
		copy->dstArray,      copy->dstXInBytes,
		copy->dstY,          copy->dstZ,
		copy->dstPitch,      copy->dstHeight,
	};
	src = (struct simb_operand){
		copy->srcMemoryType, address(copy->srcMemoryType, copy->srcHost, copy->srcDevice),
		copy->srcArray,      copy->srcXInBytes,
		copy->srcY,          copy->srcZ,
		copy->srcPitch,      copy->srcHeight,
	};
	size.width = copy->WidthInBytes;
	size.rows = copy->Height;
	size.slices = copy->Depth;
	return operands_read(&dst, &src, &size, ret_copy);
}

int
simb_copy_3d(const CUDA_MEMCPY3D *copy, CUstream stream, bool sync)
{
	struct simb_copy read = { 0 };
	int rc = simb_copy_read(copy, &read);

	return rc ? rc : sim_copy_area(&read.dst, &read.src, read.kind, simb_stream(stream), sync);
}

int
simb_copy_2d(const CUDA_MEMCPY2D *copy, CUstream stream, bool sync)
{
	struct sim_area size = { 0 };
	struct simb_operand dst, src;

	if (!copy)
		return invalid("no description");
	dst = (struct simb_operand){
		.type = (int)copy->dstMemoryType,
		.address = address((int)copy->dstMemoryType, copy->dstHost, copy->dstDevice),
		.array = copy->dstArray,
		.x = copy->dstXInBytes,
		.y = copy->dstY,
		.pitch = copy->dstPitch,
	};
	src = (struct simb_operand){
		.type = (int)copy->srcMemoryType,
		.address = address((int)copy->srcMemoryType, copy->srcHost, copy->srcDevice),
		.array = copy->srcArray,
		.x = copy->srcXInBytes,
		.y = copy->srcY,
		.pitch = copy->srcPitch,
	};
	size.width = copy->WidthInBytes;
	size.rows = copy->Height;
	size.slices = 1;
	return simb_copy_operands(&dst, &src, &size, stream, sync);
}

int
simb_peers_check(CUcontext dst, CUcontext src)
{
	unsigned long long id;
	int rc = dst && src ? 0 : simb_misuse(CUDA_ERROR_INVALID_CONTEXT, "NULL is no context");

	if (!rc)
		rc = sim_ctx_get_id(dst, &id);
	return rc ? rc : sim_ctx_get_id(src, &id);
}

/* The contexts stand where the other description has words that must be NULL. */
int
simb_copy_peer(const CUDA_MEMCPY3D_PEER *copy, CUstream stream, bool sync)
{
	CUDA_MEMCPY3D plain;
	int rc;

	_Static_assert(sizeof(*copy) == sizeof(plain), "the same fields");
	if (!copy)
		return invalid("no description");
	rc = simb_peers_check(copy->dstContext, copy->srcContext);
	memcpy(&plain, copy, sizeof(plain));
	return rc ? rc : simb_copy_3d(&plain, stream, sync);
}

int
simb_set_area(CUdeviceptr dst, size_t pitch, unsigned element_bytes, size_t width, size_t height,
	      struct sim_area *ret_area)
{
	size_t n_bytes;

	if (__builtin_mul_overflow(width, (size_t)element_bytes, &n_bytes) ||
	    (height > 1 && pitch < n_bytes))
		return invalid("the pitch is less than a row");
	*ret_area = sim_line(dst, n_bytes);
	ret_area->rows = height;
	ret_area->pitch = pitch;
	return 0;
}

int
simb_set_2d(CUdeviceptr dst, size_t pitch, unsigned value, unsigned element_bytes, size_t width,
	    size_t height, CUstream stream, bool sync)
{
	struct sim_area area;
	int rc = simb_set_area(dst, pitch, element_bytes, width, height, &area);

	return rc ? rc : sim_set_area(&area, value, element_bytes, simb_stream(stream), sync);
}
