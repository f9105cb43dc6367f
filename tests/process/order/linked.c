/* SPDX-License-Identifier: MIT */
/*
 * A program that is linked to a function of the driver's which the library does not know, or opens
 * a library that is (ORDER_PLUGIN). Each case calls it for work on memory that then goes round.
 */
#include <dlfcn.h>

#include "tests/process/order/order.h"

simb_private_fill cuFutureFill;
simb_private_fill cuFutureNothing __attribute__((weak));

static simb_private_fill *const table[] = { cuFutureFill };
static simb_private_fill *replaced = cuFutureFill;

static CUstream s, r, unseen;
static CUdeviceptr x;

/* Two streams, and a third for the work that is not seen. */
static void
begin(void)
{
	order_start();
	s = order_stream(NONBLOCKING);
	r = order_stream(NONBLOCKING);
	unseen = order_stream(NONBLOCKING);
	x = order_take(BIG);
	order_use(x, 1, s);
	OK(cuCtxSynchronize());
}

/* Behind other work, so that it has not finished when its memory is free. */
static void
use_unseen(simb_private_fill *fill)
{
	CUdeviceptr busy = order_take(BIG);

	for (int i = 0; i < 3; i++) {
		order_fill(busy, 1, LONG, unseen);
		OK(fill(x, 7, WORDS, unseen));
		x = order_again(x, BIG);
		order_use(x, 5, r);
		x = order_again(x, BIG);
	}
}

static void
go_on(void)
{
	for (uint32_t i = 0; i < 6; i++) {
		order_use(x, i, i % 2 ? s : r);
		x = order_again(x, BIG);
	}
	order_end();
}

static CUresult
linked_fill(CUdeviceptr dst, unsigned int value, size_t n_words, CUstream stream)
{
	return cuFutureFill(dst, value, n_words, stream);
}

static void
call(void)
{
	begin();
	use_unseen(linked_fill);
	go_on();
}

static void
call_by_table(void)
{
	begin();
	use_unseen(((simb_private_fill *const volatile *)table)[0]);
	go_on();
}

/* The address is the program's before its first call of the driver. */
static void
call_by_copy(void)
{
	simb_private_fill *volatile copy = cuFutureFill;

	begin();
	use_unseen(copy);
	go_on();
}

static simb_private_fill *
plugin(int mode)
{
	void *library = dlopen(getenv("ORDER_PLUGIN"), mode), *found;
	simb_private_fill *fill;

	EXPECT(library);
	found = dlsym(library, "plugin_fill");
	EXPECT(found);
	memcpy(&fill, &found, sizeof(fill));
	return fill;
}

static void
call_by_plugin_lazy(void)
{
	begin();
	use_unseen(plugin(RTLD_LAZY));
	go_on();
}

static void
call_by_plugin_now(void)
{
	begin();
	use_unseen(plugin(RTLD_NOW));
	go_on();
}

/* The memory of that work stays taken. */
static void
plugin_beside(void)
{
	CUdeviceptr kept;

	begin();
	kept = order_take(BIG);
	OK(plugin(RTLD_LAZY)(kept, 7, WORDS, unseen));
	go_on();
}

static CUresult
own_fill(CUdeviceptr dst, unsigned int value, size_t n_words, CUstream stream)
{
	(void)dst, (void)value, (void)n_words, (void)stream;
	return CUDA_ERROR_NOT_SUPPORTED;
}

/* Nothing of the kind is called, and the function has one address. A pointer that the program has
 * changed since stays its own. */
static void
no_call(void)
{
	simb_private_fill *volatile *place = &replaced;
	simb_private_fill *found;

	*place = own_fill;
	begin();
	EXPECT(*place == own_fill && !cuFutureNothing);
	*(void **)&found = dlsym(dlopen("libcuda.so.1", RTLD_LAZY), "cuFutureFill");
	EXPECT(getenv("ORDER_WRAPPED") || found == ((simb_private_fill *const volatile *)table)[0]);
	go_on();
}

static const struct order_case cases[] = {
	{ "call", call },
	{ "call_by_table", call_by_table },
	{ "call_by_copy", call_by_copy },
	{ "call_by_plugin_lazy", call_by_plugin_lazy },
	{ "call_by_plugin_now", call_by_plugin_now },
	{ "plugin_beside", plugin_beside },
	{ "no_call", no_call },
	{ NULL, NULL },
};
const struct order_case *const order_cases[] = { cases, NULL };
