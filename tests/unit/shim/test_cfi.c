/* SPDX-License-Identifier: MIT */
/*
 * shim/cfi.c on tables that are damaged: it may answer anything, but reads nothing outside them
 * (the sanitizers tell) and ends. That it is right on good ones: tests/process/framework.
 */
#include "shim/cfi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/unit/shim/check.h"

enum { ROUNDS = 20000, HEADER_BYTES = 4096 };

struct copy {
	struct ca_object object;
	ElfW(Phdr) phdr[2];
	unsigned char *bytes;
	size_t n, hdr; /* offset of .eh_frame_hdr */
	uintptr_t code, code_bytes;
};

/* Between a program's constants a sanitizer has fences. */
static __attribute__((no_sanitize("address"))) void
copy_bytes(unsigned char *to, const volatile unsigned char *from, size_t n)
{
	while (n--)
		*to++ = *from++;
}

/* The segment of this program that holds the tables, in memory of its own. */
static bool
copy_tables(const struct ca_object *object, void *arg)
{
	struct copy *copy = arg;
	const ElfW(Phdr) *hdr = NULL, *segment = NULL;

	for (unsigned i = 0; i < object->phdr_count; i++)
		if (object->phdr[i].p_type == PT_GNU_EH_FRAME)
			hdr = &object->phdr[i];
	if (!hdr)
		return false;
	for (unsigned i = 0; i < object->phdr_count; i++) {
		const ElfW(Phdr) *p = &object->phdr[i];

		if (p->p_type == PT_LOAD && hdr->p_vaddr - p->p_vaddr < p->p_memsz)
			segment = p;
		if (p->p_type == PT_LOAD && p->p_flags & PF_X) {
			copy->code = p->p_vaddr;
			copy->code_bytes = p->p_memsz;
		}
	}
	if (!segment)
		return false;
	copy->n = segment->p_filesz;
	copy->bytes = malloc(copy->n);
	copy_bytes(copy->bytes, (const unsigned char *)(object->base + segment->p_vaddr), copy->n);
	copy->hdr = hdr->p_vaddr - segment->p_vaddr;
	copy->phdr[0] = *segment;
	copy->phdr[0].p_memsz = copy->n;
	copy->phdr[1] = *hdr;
	copy->object.base = (uintptr_t)copy->bytes - segment->p_vaddr;
	copy->object.phdr = copy->phdr;
	copy->object.phdr_count = 2;
	return true;
}

static unsigned
look_up(const struct copy *copy, unsigned times)
{
	struct ca_cfi_rule rule;
	unsigned known = 0;

	while (times--)
		known += ca_cfi_find(&copy->object,
				     copy->object.base + copy->code +
					     (uintptr_t)rand() % copy->code_bytes,
				     &rule);
	return known;
}

static void
test_damaged(void **state)
{
	struct copy copy = { .n = 0 };
	unsigned seed = (unsigned)time(NULL);
	unsigned char *good;

	print_message("# seed %u\n", seed);
	srand(seed);
	assert_true(ca_object_walk(copy_tables, &copy));
	good = malloc(copy.n);
	memcpy(good, copy.bytes, copy.n);
	assert_true(look_up(&copy, 1000) > 500);
	for (unsigned round = 0; round < ROUNDS; round++) {
		size_t from = copy.hdr & ~(size_t)(HEADER_BYTES - 1);

		for (unsigned i = 0; i < 1u + (unsigned)rand() % 40; i++)
			copy.bytes[from + (size_t)rand() % (copy.n - from)] =
				(unsigned char)(rand() % 3 ? rand() : rand() % 2 * 255);
		look_up(&copy, 20);
		if (round % 16 == 15)
			memcpy(copy.bytes, good, copy.n);
	}
	free(good);
	free(copy.bytes);
}

static void
test_without_tables(void **state)
{
	struct ca_object none = { .soname = "", .path = "" };
	struct ca_cfi_rule rule;

	assert_false(ca_cfi_find(&none, (uintptr_t)test_without_tables, &rule));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_damaged),
		cmocka_unit_test(test_without_tables),
	};

	return cmocka_run_group_tests_name("cfi", tests, NULL, NULL);
}
