/* SPDX-License-Identifier: MIT */
/* config/path.c: what a pattern becomes, and that no file is ever overwritten. */
#include "config/path.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/config/check.h"

static char folder[] = "/tmp/ca-path-XXXXXX";

static int
folder_make(void **state)
{
	return mkdtemp(folder) ? 0 : -1;
}

static int
folder_remove(void **state)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -rf %s", folder);
	return system(command);
}

static const char *
in_folder(char *ret, const char *name)
{
	snprintf(ret, CA_PATH_MAX, "%s/%s", folder, name);
	return ret;
}

static void
test_check(void **state)
{
	static const char *const good[] = { "x",     "/tmp/a.json", "%p%h%r%e%t%n%%",
					    "a/b/c", "/dev/shm/x",  "./1",
					    "../x",  "/device/x" };
	static const char *const bad[] = { "%", "x%", "%q", "%P", "%5p" };
	static const char *const endless[] = { "", "a/", "/" };
	static const char *const forbidden[] = { "/dev/stderr", "/dev/null", "/proc/x", "/sys/x" };
	char text[CA_PATH_MAX + 8];

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		assert_int_equal(ca_path_check(good[i]), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(ca_path_check(bad[i]), -EINVAL);
	for (size_t i = 0; i < sizeof(endless) / sizeof(endless[0]); i++)
		assert_int_equal(ca_path_check(endless[i]), -EISDIR);
	for (size_t i = 0; i < sizeof(forbidden) / sizeof(forbidden[0]); i++)
		assert_int_equal(ca_path_check(forbidden[i]), -EPERM);
	memset(text, 'a', sizeof(text));
	text[CA_PATH_MAX] = '\0';
	assert_int_equal(ca_path_check(text), -ENAMETOOLONG);
	text[CA_PATH_MAX - 6] = '\0'; /* room for ".9999" */
	assert_int_equal(ca_path_check(text), 0);
	snprintf(text + CA_PATH_MAX - 40, 40,
		 "%%h"); /* a host name may be longer than it is here */
	assert_int_equal(ca_path_check(text), -ENAMETOOLONG);
}

/* Of the clock that is asked: time() may lag behind it. */
static long
seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (long)now.tv_sec;
}

static void
test_expand(void **state)
{
	char out[CA_PATH_MAX], expected[CA_PATH_MAX], host[256] = "";
	long before = seconds(), now;
	const char *at;

	errno = 77;
	assert_int_equal(ca_path_expand("a%%b.%p.c", out, sizeof(out)), 0);
	assert_int_equal(errno, 77);
	snprintf(expected, sizeof(expected), "a%%b.%d.c", (int)getpid());
	assert_string_equal(out, expected);
	assert_int_equal(ca_path_expand("%t", out, sizeof(out)), 0);
	at = out;
	now = check_number(&at);
	assert_true(now >= before && now <= seconds() && !*at);
	assert_int_equal(ca_path_expand("%e", out, sizeof(out)), 0);
	assert_string_equal(out, "test_path");
	gethostname(host, sizeof(host) - 1);
	assert_int_equal(ca_path_expand("%h", out, sizeof(out)), 0);
	if (strspn(host, "abcdefghijklmnopqrstuvwxyz0123456789-") == strlen(host) &&
	    strlen(host) < 64)
		assert_string_equal(out, host);
	assert_null(strchr(out, '/'));
	snprintf(out, sizeof(out), "untouched");
	assert_int_equal(ca_path_expand("%q", out, sizeof(out)), -EINVAL);
	assert_int_equal(ca_path_expand("%", out, sizeof(out)), -EINVAL);
	assert_int_equal(ca_path_expand("abcd", out, 4), -ENAMETOOLONG);
	assert_string_equal(out, "untouched");
	assert_int_equal(ca_path_expand("abc", out, 4), 0);
	assert_string_equal(out, "abc");
}

static void
test_counter(void **state)
{
	char one[CA_PATH_MAX], two[CA_PATH_MAX];
	char expected[64];
	const char *at = one;
	long first;

	assert_int_equal(ca_path_expand("%n-%n", one, sizeof(one)), 0);
	assert_int_equal(ca_path_expand("%n", two, sizeof(two)), 0);
	first = check_number(&at);
	snprintf(expected, sizeof(expected), "%ld-%ld", first, first);
	assert_string_equal(one, expected);
	snprintf(expected, sizeof(expected), "%ld", first + 1);
	assert_string_equal(two, expected);
}

/* Each in a process of its own, because the rank is read once. */
static void
check_rank(const char *const *pairs, const char *expected)
{
	static const char *const all[] = {
		"RANK",           "OMPI_COMM_WORLD_RANK", "PMIX_RANK",
		"PMI_RANK",       "MV2_COMM_WORLD_RANK",  "PALS_RANKID",
		"FLUX_TASK_RANK", "JSM_NAMESPACE_RANK",   "SLURM_PROCID",
		"LOCAL_RANK",
	};
	char out[CA_PATH_MAX] = "";
	int ends[2], status;
	pid_t child;

	assert_int_equal(pipe(ends), 0);
	child = fork();
	if (!child) {
		for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
			unsetenv(all[i]);
		for (; *pairs; pairs += 2)
			setenv(pairs[0], pairs[1], 1);
		ca_path_check("%r");
		setenv("RANK", "999", 1); /* too late */
		if (ca_path_expand("x%r", out, sizeof(out)))
			_exit(1);
		_exit(write(ends[1], out, strlen(out)) < 0);
	}
	close(ends[1]);
	assert_true(read(ends[0], out, sizeof(out) - 1) > 0);
	close(ends[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_string_equal(out, expected);
}

static void
test_rank(void **state)
{
	check_rank((const char *[]){ NULL }, "x0");
	check_rank((const char *[]){ "LOCAL_RANK", "3", NULL }, "x3");
	check_rank((const char *[]){ "LOCAL_RANK", "3", "SLURM_PROCID", "4", NULL }, "x4");
	check_rank((const char *[]){ "SLURM_PROCID", "0", "OMPI_COMM_WORLD_RANK", "5", NULL },
		   "x5");
	check_rank((const char *[]){ "SLURM_PROCID", "0", "PMI_RANK", "6", NULL }, "x6");
	check_rank((const char *[]){ "SLURM_PROCID", "0", "OMPI_COMM_WORLD_RANK", "5", "RANK", "7",
				     NULL },
		   "x7");
	check_rank((const char *[]){ "SLURM_PROCID", "0", "FLUX_TASK_RANK", "1", NULL }, "x1");
	check_rank((const char *[]){ "SLURM_PROCID", "0", "PALS_RANKID", "2", NULL }, "x2");
	check_rank((const char *[]){ "LOCAL_RANK", "0", "JSM_NAMESPACE_RANK", "3", NULL }, "x3");
	/* no number: not a rank */
	check_rank((const char *[]){ "RANK", "../../etc", "SLURM_PROCID", "8", NULL }, "x8");
	check_rank((const char *[]){ "RANK", "", "LOCAL_RANK", "9", NULL }, "x9");
	check_rank((const char *[]){ "RANK", "12345678901", NULL }, "x0");
}

/* Opens and checks the name that was taken. */
static void
check_open(const char *pattern, const char *expected)
{
	char path[CA_PATH_MAX], want[CA_PATH_MAX], got[CA_PATH_MAX], wanted[CA_PATH_MAX];
	struct stat info;
	int fd;

	errno = 77;
	fd = ca_path_open_as(in_folder(path, pattern), got, wanted);
	assert_int_equal(errno, 77);
	/* the name by the pattern, where that was taken */
	assert_string_equal(wanted, strcmp(pattern, expected) ? path : "");
	assert_true(fd >= 0);
	assert_string_equal(got, in_folder(want, expected));
	assert_int_equal(fstat(fd, &info), 0);
	assert_int_equal(info.st_mode & 07777, 0600);
	assert_int_equal(info.st_size, 0);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	assert_int_equal(write(fd, "mine", 4), 4);
	close(fd);
}

static void
test_never_overwrites(void **state)
{
	check_open("stats.json", "stats.json");
	check_open("stats.json", "stats.1.json");
	check_open("stats.json", "stats.2.json");
	check_open("plain", "plain");
	check_open("plain", "plain.1");
	check_open(".hidden", ".hidden");
	check_open(".hidden", ".hidden.1");
	check_open("dot.dir/plain", "dot.dir/plain");
	check_open("dot.dir/plain", "dot.dir/plain.1");
}

static void
test_parents(void **state)
{
	mode_t mask = umask(0);
	char path[CA_PATH_MAX];
	struct stat info;

	check_open("a/b/c/x.log", "a/b/c/x.log");
	umask(mask);
	assert_int_equal(stat(in_folder(path, "a/b"), &info), 0);
	assert_int_equal(info.st_mode & 07777, 0700);
	check_open("a//b/y.log", "a//b/y.log");
}

/* A planted link is neither followed nor replaced. */
static void
test_links(void **state)
{
	char path[CA_PATH_MAX], target[CA_PATH_MAX];
	struct stat info;

	assert_int_equal(symlink(in_folder(target, "victim"), in_folder(path, "link.log")), 0);
	check_open("link.log", "link.1.log");
	assert_int_equal(lstat(target, &info), -1);
	check_open("victim", "victim"); /* now the link has a target */
	check_open("link.log", "link.2.log");
	assert_int_equal(stat(target, &info), 0);
	assert_int_equal(info.st_size, 4);
}

static void
test_other_kinds(void **state)
{
	char path[CA_PATH_MAX];

	assert_int_equal(mkdir(in_folder(path, "dir"), 0700), 0);
	assert_int_equal(ca_path_open(path, NULL), -EEXIST);
	assert_int_equal(mkfifo(in_folder(path, "fifo"), 0600), 0);
	assert_int_equal(ca_path_open(path, NULL), -EEXIST);
	assert_int_equal(access(in_folder(path, "dir.1"), F_OK), -1);
	assert_int_equal(access(in_folder(path, "fifo.1"), F_OK), -1);
	check_open("file", "file");
	assert_int_equal(ca_path_open(in_folder(path, "file/below"), NULL), -ENOTDIR);
	assert_int_equal(ca_path_open("%q", NULL), -EINVAL);
	memset(path, 'n', 300);
	path[300] = '\0';
	assert_int_equal(ca_path_open(path, NULL), -ENAMETOOLONG);
}

/* Processes that start at once get a file each. */
static void
test_race(void **state)
{
	enum { CHILDREN = 8, FILES = 20 };
	char path[CA_PATH_MAX];

	in_folder(path, "race.txt");
	for (int i = 0; i < CHILDREN; i++) {
		if (!fork()) {
			for (int n = 0; n < FILES; n++) {
				int fd = ca_path_open(path, NULL);

				if (fd < 0 || write(fd, "x", 1) != 1)
					_exit(1);
				close(fd);
			}
			_exit(0);
		}
	}
	for (int i = 0; i < CHILDREN; i++) {
		int status;

		assert_true(wait(&status) > 0);
		assert_int_equal(status, 0);
	}
	for (int n = 0; n < CHILDREN * FILES; n++) {
		char name[64];
		struct stat info;

		snprintf(name, sizeof(name), n ? "race.%d.txt" : "race.txt", n);
		assert_int_equal(stat(in_folder(path, name), &info), 0);
		assert_int_equal(info.st_size, 1);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rank), /* first: its children must inherit no rank */
		cmocka_unit_test(test_check),       cmocka_unit_test(test_expand),
		cmocka_unit_test(test_counter),     cmocka_unit_test(test_never_overwrites),
		cmocka_unit_test(test_parents),     cmocka_unit_test(test_links),
		cmocka_unit_test(test_other_kinds), cmocka_unit_test(test_race),
	};

	return cmocka_run_group_tests_name("path", tests, folder_make, folder_remove);
}
