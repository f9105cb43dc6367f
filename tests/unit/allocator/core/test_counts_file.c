/* SPDX-License-Identifier: MIT */
/*
 * The file of counts: what is in it, what a forked child does not write to it, and that it is given
 * up rather than half kept.
 */
#include <dirent.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocator/core/counts_file.h"
#include "tests/unit/allocator/fixture.h"

enum { COUNTED = 64, BYTES = 200 };

/* The test's own, for one in /dev/shm may be of a killed process with this number. */
static char folder[] = "/dev/shm/counts-XXXXXX";
static bool made;

/* The process's own file into `path`; false: it has none. */
static bool
find(char path[512])
{
	char begin[64];
	DIR *entries = opendir(folder);
	struct dirent *entry;
	bool found = false;

	snprintf(begin, sizeof(begin), "cachealloc-%u-%d-", (unsigned)getuid(), (int)getpid());
	while (entries && !found && (entry = readdir(entries))) {
		found = strncmp(entry->d_name, begin, strlen(begin)) == 0;
		if (found)
			snprintf(path, 512, "%s/%s", folder, entry->d_name);
	}
	if (entries)
		closedir(entries);
	return found;
}

static long
first_record(void)
{
	long page = sysconf(_SC_PAGESIZE);

	return page > CA_COUNTS_HEADER ? page : CA_COUNTS_HEADER;
}

static uint64_t
first_count(const char *path, unsigned record)
{
	long page = sysconf(_SC_PAGESIZE);
	FILE *file = fopen(path, "r");
	uint64_t value = 0;

	assert_non_null(file);
	assert_int_equal(fseek(file, first_record() + (record + 1) * page - COUNTED, SEEK_SET), 0);
	assert_int_equal(fread(&value, sizeof(value), 1, file), 1);
	fclose(file);
	return value;
}

static int
begin(void)
{
	if (!made) {
		print_message("# no place for the file\n");
		skip();
	}
	return ca_counts_file_create(folder, "text");
}

static void
test_counts_are_in_the_file_and_the_rest_is_not(void **state)
{
	uint64_t *counts, *more;
	char path[512], text[8] = "";
	struct stat info;
	FILE *file;

	assert_null(ca_counts_file_alloc("none", 0, COUNTED, BYTES));
	assert_int_equal(begin(), 0);
	assert_true(find(path));
	counts = ca_counts_file_alloc("kind a b", 3, COUNTED, BYTES);
	more = ca_counts_file_alloc("kind a b", 4, COUNTED, COUNTED);
	assert_non_null(counts);
	assert_non_null(more);
	assert_int_equal((uintptr_t)counts % 64, 0);
	assert_int_equal(ca_counts_file_page(counts)->device, 3);
	assert_int_equal(ca_counts_file_page(more)->number, 1);
	assert_string_equal(ca_counts_file_page(more)->names, "kind a b");
	memset(counts, 0x55, BYTES);
	more[0] = 7;
	assert_int_equal(first_count(path, 0), UINT64_C(0x5555555555555555));
	assert_int_equal(first_count(path, 1), 7);
	assert_int_equal(stat(path, &info), 0);
	assert_int_equal(info.st_mode & 0777, 0400);
	file = fopen(path, "r");
	assert_non_null(file);
	assert_int_equal(fread(text, 1, 5, file), 5);
	fclose(file);
	assert_string_equal(text, "text");
	ca_counts_file_remove();
	assert_false(find(path));
	more[0] = 8; /* it stays where it is */
	assert_null(ca_counts_file_alloc("kind a b", 0, COUNTED, BYTES));
}

static void
test_a_child_counts_for_itself(void **state)
{
	uint64_t *counts;
	char path[512];
	int status;
	pid_t child;

	assert_int_equal(begin(), 0);
	assert_true(find(path));
	counts = ca_counts_file_alloc("kind", 0, COUNTED, BYTES);
	assert_non_null(counts);
	counts[0] = 1;
	counts[20] = 2;
	child = fork();
	if (!child) {
		char none[512];
		bool kept;

		ca_counts_file_after_fork_child();
		kept = !counts[0] && counts[20] == 2;
		counts[0] = 1000;
		ca_counts_file_remove(); /* not the parent's */
		if (ca_counts_file_create(folder, "text") || !find(none))
			_exit(2);
		ca_counts_file_remove();
		_exit(kept ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(counts[0], 1);
	assert_int_equal(first_count(path, 0), 1);
	ca_counts_file_remove();
}

static void
test_more_than_fit_end_it(void **state)
{
	char path[512];
	unsigned i;

	assert_int_equal(begin(), 0);
	for (i = 0; i < CA_COUNTS_RECORDS; i++)
		assert_non_null(ca_counts_file_alloc("kind", 0, COUNTED, BYTES));
	assert_true(find(path));
	assert_null(ca_counts_file_alloc("kind", 0, COUNTED, BYTES));
	assert_false(find(path));
}

static void
test_another_file_of_that_name_is_left_alone(void **state)
{
	char path[512];
	FILE *file;

	assert_int_equal(begin(), 0);
	assert_true(find(path));
	assert_int_equal(unlink(path), 0);
	file = fopen(path, "w");
	assert_non_null(file);
	fclose(file);
	assert_null(ca_counts_file_alloc("kind", 0, COUNTED, BYTES));
	unlink(path);
}

static void
test_a_file_out_of_reach_says_that_it_is_none(void **state)
{
	char path[512], other[520];
	uint32_t number;
	FILE *file;

	assert_int_equal(begin(), 0);
	assert_true(find(path));
	assert_non_null(ca_counts_file_alloc("kind", 0, COUNTED, BYTES));
	snprintf(other, sizeof(other), "%s.2", path);
	assert_int_equal(rename(path, other), 0);
	assert_null(ca_counts_file_alloc("kind", 0, COUNTED, BYTES));
	file = fopen(other, "r");
	assert_non_null(file);
	fseek(file, first_record() + (long)offsetof(struct ca_counts_page, number), SEEK_SET);
	assert_int_equal(fread(&number, sizeof(number), 1, file), 1);
	fclose(file);
	unlink(other);
	assert_int_equal(number, UINT32_MAX);
}

static void
test_an_update_saves_what_was(void **state)
{
	uint64_t *sums, *part, *saved;
	struct ca_counts_page *page;

	assert_int_equal(begin(), 0);
	sums = ca_counts_file_alloc("sums", 0, COUNTED, COUNTED);
	part = ca_counts_file_alloc("part", 0, COUNTED, COUNTED);
	assert_non_null(sums);
	assert_non_null(part);
	page = ca_counts_file_page(sums);
	sums[0] = 5;
	part[0] = 6;
	ca_counts_update_begin(page, sums, COUNTED, ca_counts_file_page(part), part, COUNTED);
	sums[0] = 11;
	part[0] = 0;
	assert_int_equal(page->updates, 1);
	assert_int_equal(page->updated, 1);
	saved = (uint64_t *)(void *)page->saved;
	assert_int_equal(saved[0], 5);
	assert_int_equal(((uint64_t *)(void *)page->saved_part)[0], 6);
	ca_counts_update_end(page);
	assert_int_equal(page->updates, 2);
	ca_counts_file_remove();
}

static int
make_folder(void **state)
{
	made = mkdtemp(folder) != NULL;
	return 0;
}

static int
remove_folder(void **state)
{
	return made ? rmdir(folder) : 0;
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_counts_are_in_the_file_and_the_rest_is_not),
		cmocka_unit_test(test_a_child_counts_for_itself),
		cmocka_unit_test(test_more_than_fit_end_it),
		cmocka_unit_test(test_another_file_of_that_name_is_left_alone),
		cmocka_unit_test(test_a_file_out_of_reach_says_that_it_is_none),
		cmocka_unit_test(test_an_update_saves_what_was),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
