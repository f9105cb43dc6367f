/* SPDX-License-Identifier: MIT */
/*
 * The ways by which a program comes to a registration function: direct links bound at the start or
 * at the first call, tables of addresses, dlsym, dlvsym, and libraries that were opened late.
 */
#include "tests/process/register/register.h"

#include <dlfcn.h>

typedef struct ibv_mr *reg_mr_fn(void *pd, void *addr, size_t length, int access);

static void
registers_at(CUdeviceptr x, reg_mr_fn *reg_mr, uint32_t version)
{
	struct ibv_mr *mr;

	EXPECT(reg_mr);
	mr = reg_mr(NULL, (void *)(uintptr_t)x, BIG, 0);
	EXPECT(mr && mr->lkey == version);
	EXPECT(!nic_moves(x, 1));
	order_end();
}

static void
registers_by(reg_mr_fn *reg_mr, uint32_t version)
{
	registers_at(unfinished(), reg_mr, version);
}

static void
by_dlsym(void)
{
	reg_mr_fn *fn;

	*(void **)&fn = nic_function("libibverbs.so.1", "ibv_reg_mr");
	registers_by(fn, 11);
}

static void
by_dlvsym(const char *version, uint32_t number)
{
	void *library = dlopen("libibverbs.so.1", RTLD_NOW);
	reg_mr_fn *fn;

	EXPECT(library);
	*(void **)&fn = dlvsym(library, "ibv_reg_mr", version);
	registers_by(fn, number);
}

static void
by_dlvsym_old(void)
{
	by_dlvsym("IBVERBS_1.0", 10);
}

static void
by_dlvsym_new(void)
{
	by_dlvsym("IBVERBS_1.1", 11);
}

static void
by_default(void)
{
	reg_mr_fn *fn;

	EXPECT(dlopen("libibverbs.so.1", RTLD_NOW | RTLD_GLOBAL));
	*(void **)&fn = dlsym(RTLD_DEFAULT, "ibv_reg_mr");
	registers_by(fn, 11);
}

/* Somebody else's library is not in the global scope. */
static void
by_default_not_there(void)
{
	CUdeviceptr x = unfinished();

	EXPECT(dlopen("libgdrapi.so.2", RTLD_NOW | RTLD_LOCAL));
	EXPECT(!dlsym(RTLD_DEFAULT, "gdr_pin_buffer") && !dlsym(RTLD_NEXT, "gdr_pin_buffer"));
	order_use(x, 3, stream);
	order_end();
}

/* Linked to libibverbs and opened when the memory is in use already. */
static void
by_the_plugin(const char *path, uint32_t version)
{
	struct ibv_mr *(*plugin)(void *, size_t);
	CUdeviceptr x = unfinished();

	*(void **)&plugin = nic_function(path, "plugin_register");
	EXPECT(plugin((void *)(uintptr_t)x, BIG)->lkey == version);
	EXPECT(!nic_moves(x, 1));
	order_end();
}

static void
by_a_plugin(void)
{
	by_the_plugin(getenv("NIC_PLUGIN"), 11);
}

static void
by_an_old_plugin(void)
{
	by_the_plugin(getenv("NIC_PLUGIN_OLD"), 10);
}

/* Which of two libraries the first call will reach is for the loader to say. */
static void
by_one_of_two_copies(void)
{
	EXPECT(dlopen("libnic_copy.so", RTLD_NOW) && dlopen(getenv("NIC_PLUGIN"), RTLD_LAZY));
	by_the_plugin(getenv("NIC_PLUGIN"), 11);
}

static void
by_a_plugin_that_comes_back(void)
{
	struct ibv_mr *(*plugin)(void *, size_t);
	CUdeviceptr x;
	void *library;

	order_start();
	stream = order_stream(NONBLOCKING);
	for (int i = 0; i < 4; i++) {
		x = order_take(BIG);
		order_fill(x, 1, LONG, stream);
		x = order_again(x, BIG);
		library = dlopen(getenv("NIC_PLUGIN"), RTLD_LAZY);
		EXPECT(library);
		*(void **)&plugin = dlsym(library, "plugin_register");
		EXPECT(plugin((void *)(uintptr_t)x, BIG)->lkey == 11);
		EXPECT(!nic_moves(x, 1));
		order_give(x);
		EXPECT(!dlclose(library));
	}
	order_end();
}

/* ---- what is not there */
#ifndef DIRECT
extern reg_mr_fn ibv_reg_mr __attribute__((weak));
extern __typeof__(cuFileRead) cuFileRead __attribute__((weak));
extern __typeof__(gdr_pin_buffer) gdr_pin_buffer __attribute__((weak));

static void
is_missing(const char *name)
{
	EXPECT(!dlsym(RTLD_DEFAULT, name));
	printf("%s\n", dlerror());
	EXPECT(!dlsym(RTLD_NEXT, name));
	printf("%s\n", dlerror());
	EXPECT(!dlsym(dlopen(NULL, RTLD_NOW), name));
	printf("%s\n", dlerror());
	EXPECT(!dlvsym(RTLD_DEFAULT, name, "IBVERBS_1.1"));
	printf("%s\n", dlerror());
}

static void
names_that_are_missing(void)
{
	CUdeviceptr x = unfinished();

	EXPECT(!ibv_reg_mr && !cuFileRead && !gdr_pin_buffer);
	is_missing("ibv_reg_mr");
	is_missing("ibv_reg_mr_iova2");
	is_missing("cuFileBufRegister");
	is_missing("cuFileRead");
	is_missing("gdr_pin_buffer");
	is_missing("mlx5dv_devx_umem_reg");
	EXPECT(!ibv_reg_mr && !cuFileRead && !gdr_pin_buffer);
	order_use(x, 3, stream);
	order_end();
}
#else
static reg_mr_fn *const table[] = { ibv_reg_mr };

static void
direct(void)
{
	CUdeviceptr x = unfinished();

	registers_at(x, ibv_reg_mr, 11);
}

static void
direct_call(void)
{
	CUdeviceptr x = unfinished();

	EXPECT(ibv_reg_mr(NULL, (void *)(uintptr_t)x, BIG, 0)->lkey == 11);
	EXPECT(!nic_transfer(x, 4 * WORDS, 1));
	order_end();
}

static void
direct_file(void)
{
	CUdeviceptr x = unfinished();

	EXPECT(cuFileRead(NULL, (void *)(uintptr_t)x, 4 * WORDS, 0, 0) == 4 * WORDS);
	order_end();
}

static void
direct_table(void)
{
	CUdeviceptr x = unfinished(); /* an address that was copied before is not followed */

	registers_at(x, ((reg_mr_fn *const volatile *)table)[0], 11);
}

/* One function has one address. */
static void
direct_is_the_same(void)
{
	reg_mr_fn *fn;

	unfinished();
	*(void **)&fn = nic_function("libibverbs.so.1", "ibv_reg_mr");
	EXPECT(fn == ((reg_mr_fn *const volatile *)table)[0] || getenv("NIC_PROFILED"));
	order_end();
}
#endif

const struct order_case register_roads[] = {
	{ "road_dlsym", by_dlsym },
	{ "road_dlvsym_old", by_dlvsym_old },
	{ "road_dlvsym_new", by_dlvsym_new },
	{ "road_default", by_default },
	{ "default_not_there", by_default_not_there },
	{ "road_plugin", by_a_plugin },
	{ "road_plugin_old", by_an_old_plugin },
	{ "two_copies", by_one_of_two_copies },
	{ "road_plugin_that_comes_back", by_a_plugin_that_comes_back },
#ifndef DIRECT
	{ "names_that_are_missing", names_that_are_missing },
#else
	{ "direct", direct },
	{ "direct_call", direct_call },
	{ "direct_file", direct_file },
	{ "direct_table", direct_table },
	{ "direct_is_the_same", direct_is_the_same },
#endif
	{ NULL, NULL },
};
