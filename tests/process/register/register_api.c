/* SPDX-License-Identifier: MIT */
/* Each function that is given memory, called once with memory that is unfinished. */
#include "tests/process/register/register.h"

#define FUNCTION(library, name)                                                                    \
	__typeof__(name) *fn;                                                                      \
	*(void **)&fn = nic_function(library, #name)

enum { HERE = 4 * WORDS, OFFSET = 2 * WORDS };

static void *
there(void)
{
	return (void *)(uintptr_t)unfinished();
}

static void
end(void *x, int registered)
{
	EXPECT(!registered || !nic_moves((CUdeviceptr)(uintptr_t)x, 1));
	order_use((CUdeviceptr)(uintptr_t)x, 5, stream);
	order_end();
}

static void
reg_mr_iova(void)
{
	FUNCTION("libibverbs.so.1", ibv_reg_mr_iova);
	void *x = there();

	EXPECT(fn(NULL, x, BIG, 0, 0)->lkey == 17);
	end(x, 1);
}

static void
reg_mr_iova2(void)
{
	FUNCTION("libibverbs.so.1", ibv_reg_mr_iova2);
	void *x = there();

	EXPECT(fn(NULL, x, BIG, 0, 0)->lkey == 18);
	end(x, 1);
}

static void
reg_mr_ex(void)
{
	FUNCTION("libibverbs.so.1", ibv_reg_mr_ex);
	void *x = there();
	struct ibv_mr_init_attr attr = { .length = BIG, .addr = x, .comp_mask = 2 };

	EXPECT(fn(NULL, &attr)->lkey == 115);
	end(x, 1);
}

static void
rereg_mr(void)
{
	FUNCTION("libibverbs.so.1", ibv_rereg_mr);
	struct ibv_mr *(*reg_mr)(void *, void *, size_t, int);
	char host[8];
	void *x = there();

	*(void **)&reg_mr = nic_function("libibverbs.so.1", "ibv_reg_mr");
	EXPECT(!fn(reg_mr(NULL, host, sizeof(host), 0), 1, NULL, x, BIG, 0));
	end(x, 1);
}

static void
umem_reg(void)
{
	FUNCTION("libmlx5.so.1", mlx5dv_devx_umem_reg);
	void *x = there();

	EXPECT(fn(NULL, x, HERE, 0) == x);
	end(x, 0);
}

static void
umem_reg_ex(void)
{
	FUNCTION("libmlx5.so.1", mlx5dv_devx_umem_reg_ex);
	void *x = there();
	struct mlx5dv_devx_umem_in in = { .addr = x, .size = HERE };

	EXPECT(fn(NULL, &in) == x);
	end(x, 0);
}

static void
pin_buffer(void)
{
	FUNCTION("libgdrapi.so.2", gdr_pin_buffer);
	void *x = there();

	EXPECT(!fn(NULL, (unsigned long)x, HERE, 0, 0, NULL));
	end(x, 0);
}

static void
pin_buffer_v2(void)
{
	FUNCTION("libgdrapi.so.2", gdr_pin_buffer_v2);
	void *x = there();

	EXPECT(!fn(NULL, (unsigned long)x, HERE, 0, NULL));
	end(x, 0);
}

static void
cxi_map(void)
{
	FUNCTION("libcxi.so.1", cxil_map);
	void *x = there();
	struct cxi_md *md;

	EXPECT(!fn(NULL, x, HERE, 0, NULL, &md));
	end(x, 0);
}

static void
cxi_update(void)
{
	FUNCTION("libcxi.so.1", cxil_update_md);
	void *x = there();

	EXPECT(!fn(NULL, x, HERE, 0));
	end(x, 0);
}

static void
file_register(void)
{
	FUNCTION("libcufile.so.0", cuFileBufRegister);
	void *x = there();

	EXPECT(!fn(x, HERE, 0).err);
	end(x, 0);
}

static void
file_read(void)
{
	FUNCTION("libcufile.so.0", cuFileRead);
	void *x = there();

	EXPECT(fn(NULL, x, HERE / 2, 100, OFFSET) == HERE / 2);
	end(x, 0);
}

static void
file_write(void)
{
	FUNCTION("libcufile.so.0", cuFileWrite);
	void *x = there();

	EXPECT(fn(NULL, x, HERE / 2, 100, OFFSET) == HERE / 2);
	end(x, 0);
}

static void
file_readv(void)
{
	FUNCTION("libcufile.so.0", cuFileReadv);
	char host[16];
	void *x = there();
	struct cufile_vector both[] = { { host, 16 }, { x, HERE } };

	EXPECT(!fn(NULL, both, 2, 0, 0));
	end(x, 0);
}

static void
file_writev(void)
{
	FUNCTION("libcufile.so.0", cuFileWritev);
	char host[16];
	void *x = there();
	struct cufile_vector both[] = { { host, 16 }, { x, HERE } };

	EXPECT(!fn(NULL, both, 2, 0, 0));
	end(x, 0);
}

/* Seven arguments: one lies on the stack. The result comes back in a register pair. */
static void file_async(struct cufile_error (*fn)(void *, void *, size_t *, off_t *, off_t *,
						 ssize_t *, void *))
{
	void *x = there();
	size_t size = HERE / 2;
	off_t at = 0, offset = OFFSET;
	ssize_t done = 0;
	struct cufile_error error = fn(NULL, x, &size, &at, &offset, &done, stream);

	EXPECT(error.err == 1 && error.cu_err == 77 && done == HERE / 2);
	end(x, 0);
}

static void
file_read_async(void)
{
	FUNCTION("libcufile.so.0", cuFileReadAsync);
	file_async(fn);
}

static void
file_write_async(void)
{
	FUNCTION("libcufile.so.0", cuFileWriteAsync);
	file_async(fn);
}

static void
file_batch(void)
{
	FUNCTION("libcufile.so.0", cuFileBatchIOSubmit);
	char host[16];
	void *x = there();
	struct cufile_entry entries[] = {
		{ .mode = 1, .base = host, .size = sizeof(host) },
		{ .mode = 1, .base = x, .offset = OFFSET, .size = HERE / 2 },
	};

	EXPECT(!fn(NULL, 2, entries, 0).err);
	end(x, 0);
}

const struct order_case register_api[] = {
	{ "api_reg_mr_iova", reg_mr_iova },
	{ "api_reg_mr_iova2", reg_mr_iova2 },
	{ "api_reg_mr_ex", reg_mr_ex },
	{ "api_rereg_mr", rereg_mr },
	{ "api_umem_reg", umem_reg },
	{ "api_umem_reg_ex", umem_reg_ex },
	{ "api_pin_buffer", pin_buffer },
	{ "api_pin_buffer_v2", pin_buffer_v2 },
	{ "api_cxi_map", cxi_map },
	{ "api_cxi_update", cxi_update },
	{ "api_file_register", file_register },
	{ "api_file_read", file_read },
	{ "api_file_write", file_write },
	{ "api_file_readv", file_readv },
	{ "api_file_writev", file_writev },
	{ "api_file_read_async", file_read_async },
	{ "api_file_write_async", file_write_async },
	{ "api_file_batch", file_batch },
	{ NULL, NULL },
};
