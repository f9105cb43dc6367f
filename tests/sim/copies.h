/* SPDX-License-Identifier: MIT */
/*
 * What the rows of entries.def for copies, sets and their like share. Streams are as the program
 * gave them; NULL means what the flavour of the call says. `sync` is the form without Async in its
 * name. Return the driver's code.
 */
#pragma once

#include "tests/sim/abi.h"
#include "tests/sim/engine.h"

struct simb_copy {
	struct sim_area dst, src;
	enum sim_copy_kind kind;
};

/* One side of a copy. */
struct simb_operand {
	int type;         /* enum CUmemorytype_enum */
	uint64_t address; /* unless it is an array */
	CUarray array;
	size_t x, y, z;       /* where it begins: bytes, rows, slices */
	size_t pitch, height; /* bytes of a row, rows of a slice; 0: the least there can be */
};

#define SIMB_HOST(pointer)                                                                         \
	((struct simb_operand){ .type = CU_MEMORYTYPE_HOST, .address = (uintptr_t)(pointer) })
#define SIMB_DEVICE(pointer)                                                                       \
	((struct simb_operand){ .type = CU_MEMORYTYPE_DEVICE, .address = (pointer) })
#define SIMB_ARRAY(handle, offset)                                                                 \
	((struct simb_operand){ .type = CU_MEMORYTYPE_ARRAY, .array = (handle), .x = (offset) })

/* ---- do_area.c */
/* The areas that a description names, checked as cuda.h says. */
int simb_copy_read(const CUDA_MEMCPY3D *copy, struct simb_copy *ret_copy);
int simb_copy_3d(const CUDA_MEMCPY3D *copy, CUstream stream, bool sync);
int simb_copy_2d(const CUDA_MEMCPY2D *copy, CUstream stream, bool sync);
int simb_copy_peer(const CUDA_MEMCPY3D_PEER *copy, CUstream stream, bool sync);
/* `size` gives width, rows and slices. */
int simb_copy_operands(const struct simb_operand *dst, const struct simb_operand *src,
		       const struct sim_area *size, CUstream stream, bool sync);
int simb_copy_line(struct simb_operand dst, struct simb_operand src, size_t n_bytes,
		   CUstream stream, bool sync);
/* Both contexts must live; where the memory is, the addresses say. */
int simb_peers_check(CUcontext dst, CUcontext src);
/* width elements of element_bytes a row. */
int simb_set_area(CUdeviceptr dst, size_t pitch, unsigned element_bytes, size_t width,
		  size_t height, struct sim_area *ret_area);
int simb_set_2d(CUdeviceptr dst, size_t pitch, unsigned value, unsigned element_bytes, size_t width,
		size_t height, CUstream stream, bool sync);

/* ---- do_batch.c: ret_fail may be NULL; else the number of the copy that failed, SIZE_MAX: none */
int simb_copy_batch(const CUdeviceptr *dsts, const CUdeviceptr *srcs, const size_t *sizes, size_t n,
		    const CUmemcpyAttributes *attrs, const size_t *attr_at, size_t n_attrs,
		    size_t *ret_fail, CUstream stream);
int simb_copy_batch_3d(const CUDA_MEMCPY3D_BATCH_OP *ops, size_t n, size_t *ret_fail,
		       unsigned long long flags, CUstream stream);

/* ---- do_array.c */
/* The part of an array that begins there; width, rows and slices of *area are given. */
int simb_array_area(const struct simb_operand *from, struct sim_area *area);
/* Bytes of an element; 0: no array. */
size_t simb_array_element(CUarray array);

/* ---- do_managed.c */
int simb_mem_use(CUdeviceptr ptr, size_t n_bytes, enum sim_use use, CUstream stream);
/* `uses`: a bit for each enum sim_use, done in its order on each range. */
int simb_mem_use_all(const CUdeviceptr *ptrs, const size_t *sizes, size_t n, unsigned uses,
		     unsigned long long flags, CUstream stream);
int simb_attach(CUdeviceptr ptr, size_t n_bytes, unsigned flags, CUstream stream);

/* ---- do_green.c */
int simb_stream_contexts(CUstream stream, CUcontext *ret_ctx, CUgreenCtx *ret_green);

/* ---- do_semaphore.c */
int simb_semaphores_signal(const CUexternalSemaphore *list,
			   const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *params, unsigned n,
			   CUstream stream);
int simb_semaphores_wait(const CUexternalSemaphore *list,
			 const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *params, unsigned n,
			 CUstream stream);
