/* SPDX-License-Identifier: MIT */
/* shim/bind/object.c against what the loader itself says, and against tables made by hand. */
#include "shim/bind/object.h"

#include <dlfcn.h>
#include <string.h>

#include "tests/unit/shim/check.h"

struct lookup {
	const char *soname;
	const char *name;
	uintptr_t found;
	unsigned type;
	bool holds;
};

static bool
visit(const struct ca_object *object, void *arg)
{
	struct lookup *lookup = arg;

	if (strcmp(object->soname, lookup->soname))
		return false;
	lookup->found = ca_object_symbol(object, lookup->name, &lookup->type);
	lookup->holds = ca_object_holds(object, lookup->found);
	return true;
}

static void
test_same_as_dlsym(void **state)
{
	static const char *const names[] = { "dlopen", "dlsym", "getpid", "environ", "printf" };
	void *libc = dlopen("libc.so.6", RTLD_LAZY);

	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct lookup lookup = { .soname = "libc.so.6", .name = names[i] };

		assert_true(ca_object_walk(visit, &lookup));
		assert_int_equal(lookup.found, (uintptr_t)dlsym(libc, names[i]));
		assert_int_equal(lookup.type, strcmp(names[i], "environ") ? STT_FUNC : STT_OBJECT);
		assert_true(lookup.holds);
	}
}

static void
test_misses(void **state)
{
	struct lookup lookup = { .soname = "libc.so.6", .name = "no_such_name" };

	assert_true(ca_object_walk(visit, &lookup));
	assert_int_equal(lookup.found, 0);
	lookup.name = "";
	assert_true(ca_object_walk(visit, &lookup));
	assert_int_equal(lookup.found, 0);
	lookup.soname = "libnone.so.1";
	assert_false(ca_object_walk(visit, &lookup));
	assert_false(ca_object_driver_holds((uintptr_t)dlopen));
	assert_false(ca_object_driver_holds(0));
}

static void
test_driver_by_soname(void **state)
{
	static const struct {
		const char *soname;
		bool driver;
	} cases[] = {
		{ "libcuda.so.1", true },          { "libcuda.so.1.1", true },
		{ "libcuda.so.12", true },         { "libcuda.so", false },
		{ "libcuda.so.", false },          { "", false },
		{ "libcudart.so.13", false },      { "libcuda.so.old", false },
		{ "libcudadebugger.so.1", false },
	};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct ca_object object = { .soname = cases[i].soname };

		assert_int_equal(ca_object_is_driver(&object), cases[i].driver);
	}
}

/* An object without GNU hash: the old System V table. */
static void
test_sysv_hash(void **state)
{
	static const char strings[] = "\0alpha\0beta";
	static const ElfW(Sym) symbols[] = {
		{ 0 },
		{ .st_name = 1,
		  .st_shndx = 1,
		  .st_value = 0x100,
		  .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC) },
		{ .st_name = 7, .st_shndx = SHN_UNDEF, .st_value = 0x200 },
	};
	static const uint32_t table[] = { 1, 3, 1, 0, 2, 0 };
	struct ca_object object = { .base = 0x1000,
				    .soname = "",
				    .symbols = symbols,
				    .strings = strings,
				    .sysv_hash = table };

	assert_int_equal(ca_object_symbol(&object, "alpha", NULL), 0x1100);
	assert_int_equal(ca_object_symbol(&object, "beta", NULL), 0); /* not defined here */
	assert_int_equal(ca_object_symbol(&object, "gamma", NULL), 0);
	object.sysv_hash = NULL;
	assert_int_equal(ca_object_symbol(&object, "alpha", NULL), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same_as_dlsym),
		cmocka_unit_test(test_misses),
		cmocka_unit_test(test_driver_by_soname),
		cmocka_unit_test(test_sysv_hash),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
