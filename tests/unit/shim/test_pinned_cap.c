/* SPDX-License-Identifier: MIT */
/* pinned_cap.c: files that stand for /proc and /sys (syscall is wrapped), and launchers' variables.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shim/pinned/internal.h"

enum { FILES = 8 };
#define GIB ((uint64_t)1 << 30)
#define MACHINE "MemTotal:       65536000 kB\nMemFree:        1 kB\n" /* 62.5 GiB */
#define MACHINE_BYTES ((uint64_t)65536000 << 10)
#define UNLIMITED "9223372036854771712\n" /* of a control group of version 1 */

static struct {
	const char *path, *text; /* NULL: it cannot be read */
} files[FILES];
static unsigned count;

static void
file(const char *path, const char *text)
{
	assert_true(count < FILES);
	files[count].path = path;
	files[count++].text = text;
}

static long
open_file(const char *path)
{
	int fd;

	for (unsigned i = 0; i < count; i++) {
		if (strcmp(files[i].path, path) != 0)
			continue;
		errno = EACCES;
		if (!files[i].text)
			return -1;
		fd = memfd_create("file", 0);
		assert_int_equal(write(fd, files[i].text, strlen(files[i].text)),
				 strlen(files[i].text));
		assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
		return fd;
	}
	errno = ENOENT;
	return -1;
}

long __real_syscall(long number, long a, long b, long c);
long __wrap_syscall(long number, long a, long b, long c);

long
__wrap_syscall(long number, long a, long b, long c)
{
	return number == SYS_openat ? open_file((const char *)b) : __real_syscall(number, a, b, c);
}

static int
set_up(void **state)
{
	static const char *const names[] = { "LOCAL_WORLD_SIZE",     "OMPI_COMM_WORLD_LOCAL_SIZE",
					     "MPI_LOCALNRANKS",      "MV2_COMM_WORLD_LOCAL_SIZE",
					     "PMI_LOCAL_SIZE",       "SLURM_STEP_TASKS_PER_NODE",
					     "SLURM_NTASKS_PER_NODE" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unsetenv(names[i]);
	count = 0;
	return 0;
}

static void
test_an_eighth_of_the_machine(void **state)
{
	file("/proc/meminfo", MACHINE);
	assert_int_equal(ca_pinned_default_cap(), MACHINE_BYTES / 8);
}

static void
test_nothing_can_be_read(void **state)
{
	assert_int_equal(ca_pinned_default_cap(), 0);
	file("/proc/meminfo", NULL);
	file("/proc/self/cgroup", NULL);
	assert_int_equal(ca_pinned_default_cap(), 0);
}

static void
test_no_limit(void **state)
{
	file("/proc/meminfo", MACHINE);
	file("/proc/self/cgroup", "0::/user.slice/app.scope\n");
	file("/sys/fs/cgroup/user.slice/app.scope/memory.max", "max\n");
	file("/sys/fs/cgroup/user.slice/memory.max", "max\n");
	assert_int_equal(ca_pinned_default_cap(), MACHINE_BYTES / 8);
}

static void
test_the_least_limit_of_nested_groups(void **state)
{
	file("/proc/meminfo", MACHINE);
	file("/proc/self/cgroup", "0::/a/b/c\n");
	file("/sys/fs/cgroup/a/b/c/memory.max", "max\n");
	file("/sys/fs/cgroup/a/b/memory.max", "4294967296\n");
	file("/sys/fs/cgroup/a/memory.max", "8589934592\n");
	assert_int_equal(ca_pinned_default_cap(), 4 * GIB / 8);
}

/* In a container the group's path is another one, and the limit lies at the root. */
static void
test_the_root_of_a_container(void **state)
{
	file("/proc/meminfo", MACHINE);
	file("/proc/self/cgroup", "0::/docker/0123abcd\n");
	file("/sys/fs/cgroup/memory.max", "2147483648\n");
	assert_int_equal(ca_pinned_default_cap(), 2 * GIB / 8);
}

static void
test_a_limit_without_the_machine(void **state)
{
	file("/proc/self/cgroup", "0::/\n");
	file("/sys/fs/cgroup/memory.max", "2147483648");
	assert_int_equal(ca_pinned_default_cap(), 2 * GIB / 8);
}

static void
test_a_limit_above_the_machine(void **state)
{
	file("/proc/meminfo", MACHINE);
	file("/proc/self/cgroup", "0::/x\n");
	file("/sys/fs/cgroup/x/memory.max", "1099511627776\n");
	assert_int_equal(ca_pinned_default_cap(), MACHINE_BYTES / 8);
}

static void
test_files_without_sense(void **state)
{
	file("/proc/meminfo", MACHINE);
	file("/proc/self/cgroup", "0::/a/b/c\nnonsense\n:\n::\n");
	file("/sys/fs/cgroup/a/b/c/memory.max", NULL);
	file("/sys/fs/cgroup/a/b/memory.max", "");
	file("/sys/fs/cgroup/a/memory.max", "-5\n");
	file("/sys/fs/cgroup/memory.max", "99999999999999999999999999999\n");
	assert_int_equal(ca_pinned_default_cap(), MACHINE_BYTES / 8);
}

/* Version 1, whose controllers stand by name, one or several in a line. */
static void
test_version_1(void **state)
{
	static const char *const lines[] = {
		"5:memory:/docker/x\n1:name=systemd:/y\n",
		"12:pids:/z\n3:cpu,memory:/docker/x\n",
		"2:memory,hugetlb:/docker/x",
	};

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		count = 0;
		file("/proc/meminfo", MACHINE);
		file("/proc/self/cgroup", lines[i]);
		file("/sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", UNLIMITED);
		file("/sys/fs/cgroup/memory/docker/memory.limit_in_bytes", "2147483648\n");
		file("/sys/fs/cgroup/memory/memory.limit_in_bytes", UNLIMITED);
		assert_int_equal(ca_pinned_default_cap(), 2 * GIB / 8);
	}
}

/* Both at a time: the memory controller is in one of them. A name that only contains "memory" is
 * not it. */
static void
test_both_versions(void **state)
{
	file("/proc/meminfo", MACHINE);
	file("/proc/self/cgroup", "7:memory_recursive:/q\n6:memory:/v1\n0::/v2\n");
	file("/sys/fs/cgroup/v2/memory.max", "8589934592\n");
	file("/sys/fs/cgroup/memory/v1/memory.limit_in_bytes", "4294967296\n");
	file("/sys/fs/cgroup/memory/q/memory.limit_in_bytes", "1048576\n");
	assert_int_equal(ca_pinned_default_cap(), 4 * GIB / 8);
}

static void
divided_by(const char *name, const char *value, uint64_t ranks)
{
	assert_int_equal(setenv(name, value, 1), 0);
	assert_int_equal(ca_pinned_default_cap(), MACHINE_BYTES / 8 / ranks);
	assert_int_equal(unsetenv(name), 0);
}

static void
test_ranks_of_each_launcher(void **state)
{
	file("/proc/meminfo", MACHINE);
	divided_by("LOCAL_WORLD_SIZE", "8", 8);
	divided_by("OMPI_COMM_WORLD_LOCAL_SIZE", "2", 2);
	divided_by("MPI_LOCALNRANKS", "3", 3);
	divided_by("MV2_COMM_WORLD_LOCAL_SIZE", "4", 4);
	divided_by("PMI_LOCAL_SIZE", "5", 5);
	divided_by("SLURM_STEP_TASKS_PER_NODE", "6(x2),1", 6);
	divided_by("SLURM_NTASKS_PER_NODE", "7", 7);
}

static void
test_ranks_that_are_none(void **state)
{
	static const char *const values[] = {
		"", "0", "-2", "many", "4097", "18446744073709551617"
	};

	file("/proc/meminfo", MACHINE);
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
		divided_by("LOCAL_WORLD_SIZE", values[i], 1);
	assert_int_equal(setenv("SLURM_NTASKS_PER_NODE", "2", 1), 0);
	divided_by("LOCAL_WORLD_SIZE", "0", 2);
	divided_by("LOCAL_WORLD_SIZE", "8", 8); /* torchrun's, started by srun */
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_an_eighth_of_the_machine, set_up),
		cmocka_unit_test_setup(test_nothing_can_be_read, set_up),
		cmocka_unit_test_setup(test_no_limit, set_up),
		cmocka_unit_test_setup(test_the_least_limit_of_nested_groups, set_up),
		cmocka_unit_test_setup(test_the_root_of_a_container, set_up),
		cmocka_unit_test_setup(test_a_limit_without_the_machine, set_up),
		cmocka_unit_test_setup(test_a_limit_above_the_machine, set_up),
		cmocka_unit_test_setup(test_files_without_sense, set_up),
		cmocka_unit_test_setup(test_version_1, set_up),
		cmocka_unit_test_setup(test_both_versions, set_up),
		cmocka_unit_test_setup(test_ranks_of_each_launcher, set_up),
		cmocka_unit_test_setup(test_ranks_that_are_none, set_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
