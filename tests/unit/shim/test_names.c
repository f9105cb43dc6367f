/* SPDX-License-Identifier: MIT */
/* shim/bind/names.c: the two tables agree with each other, and every name is found. */
#include "shim/bind/loader.h"

#include <string.h>

#include "shim/bind/hooks.h"
#include "tests/unit/shim/check.h"

/* The table of hooks wants their addresses. */
#define CA_HOOK(symbol, base, version, flags, params, args)                                        \
	CUresult symbol params                                                                     \
	{                                                                                          \
		return CUDA_ERROR_UNKNOWN;                                                         \
	}
#include "shim/bind/hooks.def"

struct name {
	const char *symbol;
	const char *base;
	int version;
	bool per_thread;
};

#define LEGACY false
#define PTSZ true
static const struct name names[] = {
#define CA_NAME(symbol, base, version, flavour) { #symbol, #base, version, flavour },
#include "shim/bind/cuda_names.def"
#undef CA_NAME
};

enum { NAMES = sizeof(names) / sizeof(names[0]) };

static void
test_sorted(void **state)
{
	for (unsigned i = 1; i < NAMES; i++)
		if (strcmp(names[i - 1].symbol, names[i].symbol) >= 0)
			fail_msg("%s does not come before %s", names[i - 1].symbol,
				 names[i].symbol);
}

static bool
visit_symbol(const char *symbol, void *arg)
{
	return !strcmp(symbol, arg);
}

static void
test_every_name_is_found(void **state)
{
	for (unsigned i = 0; i < NAMES; i++) {
		assert_true(ca_name_is_symbol(names[i].symbol));
		assert_true(ca_name_is_base(names[i].base));
		assert_true(ca_name_each_symbol(names[i].base, visit_symbol,
						(void *)(uintptr_t)names[i].symbol));
	}
}

static void
test_other_names_are_not(void **state)
{
	static const char *const others[] = {
		"", "cu", "cuA", "cuMemAllo", "cuMemAlloc_v9", "cuZ", "zz", "cuMemAlloc_v2_"
	};

	for (unsigned i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		assert_false(ca_name_is_symbol(others[i]));
		assert_false(ca_name_is_base(others[i]));
		assert_null(ca_row_of_hook(others[i]));
	}
	assert_true(ca_name_is_symbol("cuMemAlloc_v2"));
	assert_false(ca_name_is_base("cuMemAlloc_v2"));
}

/* A row whose version or flavour is not the table's would route to the wrong ABI. */
static void
test_rows_agree_with_names(void **state)
{
	for (unsigned r = 0; r < CA_ROW_COUNT; r++) {
		const struct name *found = NULL;

		for (unsigned i = 0; i < NAMES; i++)
			if (!strcmp(names[i].symbol, ca_rows[r].symbol))
				found = &names[i];
		if (!found)
			fail_msg("%s is not in cuda_names.def", ca_rows[r].symbol);
		else if (strcmp(found->base, ca_rows[r].base) ||
			 found->version != ca_rows[r].version ||
			 found->per_thread != ca_rows[r].per_thread)
			fail_msg("%s: %s %d in hooks.def, %s %d in cuda_names.def",
				 ca_rows[r].symbol, ca_rows[r].base, ca_rows[r].version,
				 found->base, found->version);
	}
}

static void
test_hooks(void **state)
{
	assert_int_equal(ca_row_of_hook("cuMemAlloc_v2")->hook, (uintptr_t)cuMemAlloc_v2);
	assert_ptr_equal(ca_row_of_hook("cuMemAlloc_v2"), &ca_rows[CA_ROW_cuMemAlloc_v2]);
	assert_true(ca_row_of_hook("cuMemFreeAsync_ptsz")->per_thread);
	assert_null(ca_row_of_hook("cuMemAlloc")); /* the 32-bit ABI */
	assert_null(ca_row_of_hook("cuCtxGetCurrent"));
	assert_true(ca_name_newest_version() >= 13000 && ca_name_newest_version() < 14000);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sorted),
		cmocka_unit_test(test_every_name_is_found),
		cmocka_unit_test(test_other_names_are_not),
		cmocka_unit_test(test_rows_agree_with_names),
		cmocka_unit_test(test_hooks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
