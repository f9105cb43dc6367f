/* SPDX-License-Identifier: MIT */
/*
 * Bodies: batches of copies. A batch is the same copies one after the other; those of one batch,
 * which natively are in no order, are in that order here. It ends at the first that is refused.
 * When a source is read is the driver's to choose; in the stream's order is always right.
 */
#include "tests/sim/call.h"
#include "tests/sim/copies.h"

static int
refused(const char *what)
{
	simb_misuse(CUDA_ERROR_INVALID_VALUE, what);
	return CUDA_ERROR_INVALID_VALUE;
}

/* What is asked of the whole batch. */
static int
batch_check(const void *list, size_t n, CUstream stream)
{
	if (!list || !n)
		return refused("no copies");
	return simb_stream(stream) && simb_stream(stream) != CU_STREAM_LEGACY
		       ? 0
		       : refused("a batch on the legacy stream");
}

static int
order_check(unsigned order)
{
	return order < CU_MEMCPY_SRC_ACCESS_ORDER_STREAM || order > CU_MEMCPY_SRC_ACCESS_ORDER_ANY
		       ? refused("no such order of access to the source")
		       : 0;
}

/* Each set of attributes holds from its index on. */
static int
attributes_check(const CUmemcpyAttributes *attrs, const size_t *at, size_t n_attrs, size_t n)
{
	int rc = 0;

	if (!attrs || !at || !n_attrs || n_attrs > n || at[0] || at[n_attrs - 1] >= n)
		return refused("no attributes, or not for all copies");
	for (size_t i = 0; !rc && i < n_attrs; i++)
		rc = i && at[i] <= at[i - 1] ? refused("attributes out of order")
					     : order_check(attrs[i].srcAccessOrder);
	return rc;
}

int
simb_copy_batch(const CUdeviceptr *dsts, const CUdeviceptr *srcs, const size_t *sizes, size_t n,
		const CUmemcpyAttributes *attrs, const size_t *attr_at, size_t n_attrs,
		size_t *ret_fail, CUstream stream)
{
	int rc = !dsts || !srcs ? refused("no addresses") : batch_check(sizes, n, stream);

	if (ret_fail)
		*ret_fail = SIZE_MAX;
	if (!rc)
		rc = attributes_check(attrs, attr_at, n_attrs, n);
	for (size_t i = 0; !rc && i < n; i++) {
		rc = sizes[i] ? sim_copy(dsts[i], srcs[i], sizes[i], SIM_COPY_ANY,
					 simb_stream(stream), false)
			      : refused("a copy of no bytes");
		if (rc && ret_fail)
			*ret_fail = i;
	}
	return rc;
}

static struct simb_operand
operand_of(const CUmemcpy3DOperand *from, size_t element)
{
	if (from->type == CU_MEMCPY_OPERAND_TYPE_ARRAY)
		return (struct simb_operand){ .type = CU_MEMORYTYPE_ARRAY,
					      .array = from->op.array.array,
					      .x = from->op.array.offset.x * element,
					      .y = from->op.array.offset.y,
					      .z = from->op.array.offset.z };
	return (struct simb_operand){ .type = CU_MEMORYTYPE_UNIFIED,
				      .address = from->op.ptr.ptr,
				      .pitch = from->op.ptr.rowLength * element,
				      .height = from->op.ptr.layerHeight };
}

/* Sizes are in elements: those of the array if there is one, else bytes. */
static size_t
element_of(const CUDA_MEMCPY3D_BATCH_OP *op)
{
	size_t element = 0;

	if (op->src.type == CU_MEMCPY_OPERAND_TYPE_ARRAY)
		element = simb_array_element(op->src.op.array.array);
	else if (op->dst.type == CU_MEMCPY_OPERAND_TYPE_ARRAY)
		element = simb_array_element(op->dst.op.array.array);
	return element ? element : 1;
}

static int
op_submit(const CUDA_MEMCPY3D_BATCH_OP *op, CUstream stream)
{
	size_t element = element_of(op);
	struct simb_operand dst = operand_of(&op->dst, element),
			    src = operand_of(&op->src, element);
	struct sim_area size = { .width = op->extent.width * element,
				 .rows = op->extent.height,
				 .slices = op->extent.depth };
	int rc = order_check(op->srcAccessOrder);

	if (!rc && (!size.width || !size.rows || !size.slices))
		rc = refused("a copy of no bytes");
	return rc ? rc : simb_copy_operands(&dst, &src, &size, stream, false);
}

int
simb_copy_batch_3d(const CUDA_MEMCPY3D_BATCH_OP *ops, size_t n, size_t *ret_fail,
		   unsigned long long flags, CUstream stream)
{
	int rc = flags ? refused("flags must be 0") : batch_check(ops, n, stream);

	if (ret_fail)
		*ret_fail = SIZE_MAX;
	for (size_t i = 0; !rc && i < n; i++) {
		rc = op_submit(&ops[i], stream);
		if (rc && ret_fail)
			*ret_fail = i;
	}
	return rc;
}
