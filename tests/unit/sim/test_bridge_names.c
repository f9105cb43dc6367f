/* SPDX-License-Identifier: MIT */
/* names.c: the table of names and the search of cuGetProcAddress. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "tests/sim/names.h"

enum { DRIVER = 13050, PTSZ_FLAG = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM };

/* Symbol found, or "-34" and the like. */
static const char *
query(const char *base, int version, uint64_t flags, int driver)
{
	int index = simb_name_query(base, version, flags, driver);

	if (index >= 0)
		return simb_names[index].symbol;
	return index == -ENOENT ? "ENOENT" : index == -ERANGE ? "ERANGE" : "?";
}

static void
test_table_is_sorted_and_filled(void **state)
{
	for (int i = 0; i < SIMB_NAMES; i++) {
		const struct simb_name *name = &simb_names[i];

		if (i)
			assert_true(strcmp(simb_names[i - 1].symbol, name->symbol) < 0);
		assert_int_equal(simb_name_find(name->symbol), i);
		assert_true(name->addr != NULL);
		assert_true(name->version >= 2000 && name->version <= DRIVER);
		assert_int_equal(name->ptsz,
				 strstr(name->symbol, "_ptsz") || strstr(name->symbol, "_ptds"));
	}
	assert_int_equal(simb_name_find("cuMemAlloc_v9"), -ENOENT);
	assert_int_equal(simb_name_find(""), -ENOENT);
}

/* Each row is what its own base, version and flavour find, if no other row has the same three. */
static void
test_every_row_is_reached_by_its_own_version(void **state)
{
	for (int i = 0; i < SIMB_NAMES; i++) {
		const struct simb_name *name = &simb_names[i];

		assert_string_equal(
			query(name->base, name->version, name->ptsz ? PTSZ_FLAG : 0, DRIVER),
			name->symbol);
	}
}

static void
test_one_version_below_is_another_row(void **state)
{
	for (int i = 0; i < SIMB_NAMES; i++) {
		const struct simb_name *name = &simb_names[i];
		int below = simb_name_query(name->base, name->version - 1,
					    name->ptsz ? PTSZ_FLAG : 0, DRIVER);

		assert_int_not_equal(below, i);
		assert_int_not_equal(below, -ENOENT);
		if (below >= 0)
			assert_true(simb_names[below].version < name->version);
	}
}

static void
test_flavours(void **state)
{
	assert_string_equal(query("cuMemcpyAsync", DRIVER, 0, DRIVER), "cuMemcpyAsync");
	assert_string_equal(query("cuMemcpyAsync", DRIVER, 1, DRIVER), "cuMemcpyAsync");
	assert_string_equal(query("cuMemcpyAsync", DRIVER, 2, DRIVER), "cuMemcpyAsync_ptsz");
	assert_string_equal(query("cuMemcpyAsync", 6050, 2, DRIVER), "cuMemcpyAsync");
	assert_string_equal(query("cuMemGetInfo", DRIVER, 2, DRIVER), "cuMemGetInfo_v2");
}

static void
test_older_driver(void **state)
{
	assert_string_equal(query("cuCtxRecordEvent", 12040, 0, DRIVER), "ERANGE");
	assert_string_equal(query("cuCtxRecordEvent", 12040, 0, 12040), "ENOENT");
	assert_string_equal(query("cuCtxCreate", 11030, 0, 12040), "cuCtxCreate_v2");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table_is_sorted_and_filled),
		cmocka_unit_test(test_every_row_is_reached_by_its_own_version),
		cmocka_unit_test(test_one_version_below_is_another_row),
		cmocka_unit_test(test_flavours),
		cmocka_unit_test(test_older_driver),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
