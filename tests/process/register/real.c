/* SPDX-License-Identifier: MIT */
/*
 * The real libcufile and libibverbs, linked directly as PyTorch's package does, and looked up as
 * NCCL does. There is no card and no disk, so nothing is registered: the functions' addresses tell
 * that calls of them would be seen.
 */
#include "tests/process/register/register.h"

#include <dlfcn.h>

CUstream stream;

static bool
is_seen(const void *function)
{
	Dl_info info;

	EXPECT(function && dladdr(function, &info));
	return strstr(info.dli_fname, "libcachealloc") != NULL;
}

static CUdeviceptr
begin(void)
{
	CUdeviceptr x;

	order_start();
	stream = order_stream(NONBLOCKING);
	x = order_take(BIG);
	order_fill(x, 1, LONG, stream);
	return order_again(x, BIG);
}

static void
go_on(CUdeviceptr x)
{
	for (uint32_t i = 0; i < 300; i++) {
		order_use(x, i, stream);
		x = order_again(x, BIG);
	}
	order_end();
}

static void
linked(void)
{
	CUdeviceptr x = begin();
	bool wanted = getenv("REAL_NATIVE") == NULL;

	(void)wanted;

#ifdef VERBS
	void *verbs = dlopen("libibverbs.so.1", RTLD_NOW);
	void *old = dlvsym(verbs, "ibv_reg_mr", "IBVERBS_1.0");
	void *now = dlvsym(verbs, "ibv_reg_mr", "IBVERBS_1.1");

	EXPECT(is_seen((void *)ibv_reg_mr) == wanted);
	EXPECT((void *)ibv_reg_mr == now && now == dlsym(verbs, "ibv_reg_mr") && now != old);
	EXPECT(is_seen(old) == wanted && is_seen(now) == wanted);
	EXPECT(is_seen(dlvsym(verbs, "ibv_reg_mr_iova2", "IBVERBS_1.8")) == wanted);
	EXPECT(is_seen(dlsym(RTLD_DEFAULT, "ibv_rereg_mr")) == wanted);
#endif
#ifdef FILES
	EXPECT(is_seen((void *)cuFileBufRegister) == wanted);
	EXPECT(is_seen((void *)cuFileRead) == wanted &&
	       is_seen((void *)cuFileWriteAsync) == wanted);
	EXPECT(is_seen(dlsym(RTLD_DEFAULT, "cuFileBatchIOSubmit")) == wanted);
#endif
	go_on(x);
}

static const struct order_case cases[] = {
	{ "linked", linked },
	{ NULL, NULL },
};
const struct order_case *const order_cases[] = { cases, NULL };
