/* SPDX-License-Identifier: MIT */
/*
 * Stand-ins for libibverbs.so.1, libcufile.so.0, libgdrapi.so.2, libmlx5.so.1 and libcxi.so.1: the
 * functions by which GPU memory is given to a network card or a disk, with the real names, versions
 * and arguments. What is registered stays so until the end of the process, as in a registration
 * cache.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The version that was called comes back in `lkey`: 10 or 11. */
struct ibv_mr {
	void *context, *pd, *addr;
	size_t length;
	uint32_t handle, lkey, rkey;
};
struct ibv_mr_init_attr {
	size_t length;
	int access;
	uint64_t comp_mask, iova;
	void *addr;
	int fd;
	uint64_t fd_offset;
	void *dmah;
};
void *ibv_alloc_pd(void *context);
struct ibv_mr *ibv_reg_mr(void *pd, void *addr, size_t length, int access);
struct ibv_mr *ibv_reg_mr_iova(void *pd, void *addr, size_t length, uint64_t iova, int access);
struct ibv_mr *ibv_reg_mr_iova2(void *pd, void *addr, size_t length, uint64_t iova,
				unsigned access);
struct ibv_mr *ibv_reg_mr_ex(void *pd, struct ibv_mr_init_attr *attr);
int ibv_rereg_mr(struct ibv_mr *mr, int flags, void *pd, void *addr, size_t length, int access);
/* The card sends from, or receives into, memory that was registered: at once, with an error
 * (nonzero) if it was not. */
int nic_transfer(uint64_t address, size_t bytes, int receives);

struct mlx5dv_devx_umem_in {
	void *addr;
	size_t size;
	uint32_t access;
	uint64_t pgsz_bitmap, comp_mask;
	int dmabuf_fd;
};
void *mlx5dv_devx_umem_reg(void *context, void *addr, size_t size, uint32_t access);
void *mlx5dv_devx_umem_reg_ex(void *context, struct mlx5dv_devx_umem_in *in);

int gdr_pin_buffer(void *g, unsigned long addr, size_t size, uint64_t p2p_token, uint32_t va_space,
		   void *handle);
int gdr_pin_buffer_v2(void *g, unsigned long addr, size_t size, uint32_t flags, void *handle);

struct cxi_md;
int cxil_alloc_lni(void *dev, void **lni, unsigned svc_id);
int cxil_map(void *lni, void *va, size_t len, uint32_t flags, void *hints, struct cxi_md **md);
int cxil_update_md(struct cxi_md *md, void *va, size_t len, uint32_t flags);

struct cufile_error {
	int err, cu_err;
};
struct cufile_vector {
	void *base;
	size_t len;
};
struct cufile_entry {
	int mode;
	void *base;
	off_t file_offset, offset;
	size_t size;
	void *fh;
	int opcode;
	void *cookie;
};
struct cufile_error cuFileBufRegister(const void *base, size_t length, int flags);
ssize_t cuFileRead(void *fh, void *base, size_t size, off_t file_offset, off_t offset);
ssize_t cuFileWrite(void *fh, const void *base, size_t size, off_t file_offset, off_t offset);
ssize_t cuFileReadv(void *fh, const struct cufile_vector *iov, size_t n, off_t offset,
		    unsigned flags);
ssize_t cuFileWritev(void *fh, const struct cufile_vector *iov, size_t n, off_t offset,
		     unsigned flags);
struct cufile_error cuFileReadAsync(void *fh, void *base, size_t *size, off_t *file_offset,
				    off_t *offset, ssize_t *done, void *stream);
struct cufile_error cuFileWriteAsync(void *fh, void *base, size_t *size, off_t *file_offset,
				     off_t *offset, ssize_t *done, void *stream);
struct cufile_error cuFileBatchIOSubmit(void *batch, unsigned n, struct cufile_entry *entry,
					unsigned flags);
