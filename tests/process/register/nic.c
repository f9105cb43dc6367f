/* SPDX-License-Identifier: MIT */
/* One of the stand-ins of nic.h, by -DKIND_...; what it reads or writes, the race oracle hears. */
#include "tests/process/register/nic.h"

void simcuda_touch(unsigned long long address, size_t n_bytes, int writes) __attribute__((weak));

#define EXPORT __attribute__((visibility("default")))

__attribute__((unused)) static void
touch(const void *at, size_t bytes, int writes)
{
	if (simcuda_touch && bytes)
		simcuda_touch((uintptr_t)at, bytes, writes);
}

#if defined(KIND_ibverbs)
static struct ibv_mr registered[256];
static unsigned n;

static struct ibv_mr *
add(void *addr, size_t length, uint32_t version)
{
	struct ibv_mr *mr = &registered[n++ % 256];

	*mr = (struct ibv_mr){ .addr = addr, .length = length, .lkey = version };
	return mr;
}

EXPORT void *
ibv_alloc_pd(void *context)
{
	return registered;
}

EXPORT struct ibv_mr *reg_mr_1_0(void *pd, void *addr, size_t length, int access);
EXPORT struct ibv_mr *reg_mr_1_1(void *pd, void *addr, size_t length, int access);
__asm__(".symver reg_mr_1_0, ibv_reg_mr@IBVERBS_1.0");
__asm__(".symver reg_mr_1_1, ibv_reg_mr@@IBVERBS_1.1");

struct ibv_mr *
reg_mr_1_0(void *pd, void *addr, size_t length, int access)
{
	return add(addr, length, 10);
}

struct ibv_mr *
reg_mr_1_1(void *pd, void *addr, size_t length, int access)
{
	return add(addr, length, 11);
}

EXPORT struct ibv_mr *
ibv_reg_mr_iova(void *pd, void *addr, size_t length, uint64_t iova, int access)
{
	return add(addr, length, 17);
}

EXPORT struct ibv_mr *
ibv_reg_mr_iova2(void *pd, void *addr, size_t length, uint64_t iova, unsigned access)
{
	return add(addr, length, 18);
}

EXPORT struct ibv_mr *
ibv_reg_mr_ex(void *pd, struct ibv_mr_init_attr *attr)
{
	return add(attr->addr, attr->length, 115);
}

EXPORT int
ibv_rereg_mr(struct ibv_mr *mr, int flags, void *pd, void *addr, size_t length, int access)
{
	*mr = (struct ibv_mr){ .addr = addr, .length = length };
	return 0;
}

EXPORT int
nic_transfer(uint64_t address, size_t bytes, int receives)
{
	for (unsigned i = 0; i < n && i < 256; i++) {
		if (address < (uintptr_t)registered[i].addr ||
		    address + bytes > (uintptr_t)registered[i].addr + registered[i].length)
			continue;
		touch((const void *)(uintptr_t)address, bytes, receives);
		return 0;
	}
	return -1;
}
#elif defined(KIND_mlx5)
EXPORT void *
mlx5dv_devx_umem_reg(void *context, void *addr, size_t size, uint32_t access)
{
	touch(addr, size, 1);
	return addr;
}

EXPORT void *
mlx5dv_devx_umem_reg_ex(void *context, struct mlx5dv_devx_umem_in *in)
{
	touch(in->addr, in->size, 1);
	return in->addr;
}
#elif defined(KIND_gdrapi)
EXPORT int
gdr_pin_buffer(void *g, unsigned long addr, size_t size, uint64_t p2p_token, uint32_t va_space,
	       void *handle)
{
	touch((const void *)addr, size, 1);
	return 0;
}

EXPORT int
gdr_pin_buffer_v2(void *g, unsigned long addr, size_t size, uint32_t flags, void *handle)
{
	touch((const void *)addr, size, 1);
	return 0;
}
#elif defined(KIND_cxi)
EXPORT int
cxil_alloc_lni(void *dev, void **lni, unsigned svc_id)
{
	*lni = dev;
	return 0;
}

EXPORT int
cxil_map(void *lni, void *va, size_t len, uint32_t flags, void *hints, struct cxi_md **md)
{
	touch(va, len, 1);
	*md = va;
	return 0;
}

EXPORT int
cxil_update_md(struct cxi_md *md, void *va, size_t len, uint32_t flags)
{
	touch(va, len, 1);
	return 0;
}
#elif defined(KIND_cufile)
EXPORT struct cufile_error
cuFileBufRegister(const void *base, size_t length, int flags)
{
	touch(base, length, 1);
	return (struct cufile_error){ 0 };
}

EXPORT ssize_t
cuFileRead(void *fh, void *base, size_t size, off_t file_offset, off_t offset)
{
	touch((char *)base + offset, size, 1);
	return (ssize_t)size;
}

EXPORT ssize_t
cuFileWrite(void *fh, const void *base, size_t size, off_t file_offset, off_t offset)
{
	touch((const char *)base + offset, size, 0);
	return (ssize_t)size;
}

EXPORT ssize_t
cuFileReadv(void *fh, const struct cufile_vector *iov, size_t n, off_t offset, unsigned flags)
{
	for (size_t i = 0; i < n; i++)
		touch(iov[i].base, iov[i].len, 1);
	return 0;
}

EXPORT ssize_t
cuFileWritev(void *fh, const struct cufile_vector *iov, size_t n, off_t offset, unsigned flags)
{
	for (size_t i = 0; i < n; i++)
		touch(iov[i].base, iov[i].len, 0);
	return 0;
}

EXPORT struct cufile_error
cuFileReadAsync(void *fh, void *base, size_t *size, off_t *file_offset, off_t *offset,
		ssize_t *done, void *stream)
{
	touch((char *)base + *offset, *size, 1);
	*done = (ssize_t)*size;
	return (struct cufile_error){ stream != NULL, 77 };
}

EXPORT struct cufile_error
cuFileWriteAsync(void *fh, void *base, size_t *size, off_t *file_offset, off_t *offset,
		 ssize_t *done, void *stream)
{
	touch((char *)base + *offset, *size, 0);
	*done = (ssize_t)*size;
	return (struct cufile_error){ stream != NULL, 77 };
}

EXPORT struct cufile_error
cuFileBatchIOSubmit(void *batch, unsigned n, struct cufile_entry *entry, unsigned flags)
{
	for (unsigned i = 0; i < n; i++)
		touch((char *)entry[i].base + entry[i].offset, entry[i].size, 1);
	return (struct cufile_error){ 0 };
}
#elif defined(KIND_plugin)
/* Linked to libibverbs, and opened late. */
EXPORT struct ibv_mr *plugin_register(void *addr, size_t length);
EXPORT int plugin_transfer(uint64_t address, size_t bytes);

struct ibv_mr *
plugin_register(void *addr, size_t length)
{
	return ibv_reg_mr(NULL, addr, length, 0);
}

int
plugin_transfer(uint64_t address, size_t bytes)
{
	return nic_transfer(address, bytes, 1);
}
#elif defined(KIND_plugin_old)
/* The same, built long ago. */
EXPORT struct ibv_mr *plugin_register(void *addr, size_t length);
struct ibv_mr *reg_mr(void *pd, void *addr, size_t length, int access);
__asm__(".symver reg_mr, ibv_reg_mr@IBVERBS_1.0");

struct ibv_mr *
plugin_register(void *addr, size_t length)
{
	return reg_mr(NULL, addr, length, 0);
}
#elif defined(KIND_profiler)
/* A preloaded wrapper, as tools have them. */
#include <dlfcn.h>
#include <stdio.h>

EXPORT struct ibv_mr *
ibv_reg_mr(void *pd, void *addr, size_t length, int access)
{
	struct ibv_mr *(*next)(void *, void *, size_t, int);

	*(void **)&next = dlsym(RTLD_NEXT, "ibv_reg_mr");
	fprintf(stderr, "profiler: ibv_reg_mr\n");
	return next(pd, addr, length, access);
}
#endif
