/* SPDX-License-Identifier: MIT */
/* config/log.c: one write a line, nothing lost or mixed,
 * no harm to the program's own descriptors. */
#include "config/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/config/check.h"

/* While a test runs, stderr is a pipe in packet mode: each read returns exactly one write. */
static int packets, real_stderr;
static char folder[64];

static int
set_up(void **state)
{
	int ends[2];

	strcpy(folder, "/tmp/ca-log-XXXXXX");
	if (!mkdtemp(folder) || pipe2(ends, O_DIRECT | O_NONBLOCK))
		return -1;
	fflush(stderr);
	real_stderr = dup(STDERR_FILENO);
	dup2(ends[1], STDERR_FILENO);
	close(ends[1]);
	packets = ends[0];
	return 0;
}

static int
tear_down(void **state)
{
	char command[128];

	ca_log_configure(CA_LOG_WARN, "");
	dup2(real_stderr, STDERR_FILENO);
	close(real_stderr);
	close(packets);
	snprintf(command, sizeof(command), "rm -rf %s", folder);
	return system(command);
}

/* Each line's process is checked and taken out: of "cachealloc[12]: a" stays "cachealloc: a". The
 * child of a fork may have written the text, too. */
static const char *
without_pid(char *text)
{
	static const char name[] = "cachealloc[";
	char *at = text, *end;

	while ((at = strstr(at, name))) {
		at += strlen(name) - 1;
		assert_true(strtol(at + 1, &end, 10) >= getpid() && *end == ']');
		memmove(at, end + 1, strlen(end));
	}
	return text;
}

static char line[4096];

/* The next write to stderr, "" if there was none. */
static const char *
next_line(void)
{
	ssize_t n = read(packets, line, sizeof(line) - 1);

	line[n > 0 ? n : 0] = '\0';
	return without_pid(line);
}

/* The number that the text of a warning begins with. */
static long
line_number(const char *warning)
{
	const char *at = strncmp(warning, "cachealloc: warning: ", 21) != 0 ? "" : warning + 21;

	return check_number(&at);
}

static const char *
in_folder(char *ret, const char *name)
{
	snprintf(ret, 256, "%s/%s", folder, name);
	return ret;
}

static const char *
file_text(const char *name)
{
	static char text[1 << 20];
	char path[256];
	int fd = open(in_folder(path, name), O_RDONLY);
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);

	text[n > 0 ? n : 0] = '\0';
	if (fd >= 0)
		close(fd);
	return without_pid(text);
}

static int
file_count(void)
{
	DIR *dir = opendir(folder);
	int count = 0;

	for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir))
		count += entry->d_name[0] != '.';
	closedir(dir);
	return count;
}

/* The descriptor, above the usual ones, that leads to `name` in the folder; -1 if none. */
static int
find_descriptor(const char *name)
{
	char path[256], link[64], target[256];

	in_folder(path, name);
	for (int fd = 3; fd < 1024; fd++) {
		ssize_t n;

		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		n = readlink(link, target, sizeof(target) - 1);
		target[n > 0 ? n : 0] = '\0';
		if (!strcmp(target, path))
			return fd;
	}
	return -1;
}

static void
test_levels(void **state)
{
	ca_log_configure(CA_LOG_DEBUG, "");
	errno = 77;
	ca_error("one %d", 1);
	assert_string_equal(next_line(), "cachealloc: error: one 1\n");
	ca_warn("two %s", "x");
	assert_string_equal(next_line(), "cachealloc: warning: two x\n");
	ca_info("three");
	assert_string_equal(next_line(), "cachealloc: info: three\n");
	ca_debug("four");
	assert_string_equal(next_line(), "cachealloc: debug: four\n");
	errno = 77;
	ca_error("five");
	assert_int_equal(errno, 77);
	next_line();
	for (int level = CA_LOG_OFF; level <= CA_LOG_DEBUG; level++) {
		ca_log_configure((enum ca_log_level)level, "");
		assert_false(ca_log_enabled(CA_LOG_OFF));
		for (int of = CA_LOG_ERROR; of <= CA_LOG_DEBUG; of++) {
			assert_int_equal(ca_log_enabled((enum ca_log_level)of), of <= level);
			ca_log((enum ca_log_level)of, "x");
			assert_int_equal(*next_line() != '\0', of <= level);
		}
	}
}

static void
test_one_line(void **state)
{
	char text[5000], pid[32];

	snprintf(pid, sizeof(pid), "[%d]", (int)getpid());
	memset(text, 'y', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	ca_error("%s", text);
	next_line();
	assert_int_equal(strlen(line) + strlen(pid), 1023);
	assert_string_equal(line + strlen(line) - 6, "yy...\n");
	text[900] = '\0';
	ca_error("%s", text);
	assert_int_equal(strlen(next_line()), strlen("cachealloc: error: ") + 900 + 1);
	ca_error("a\nb\x1b[31m\tc");
	assert_string_equal(next_line(), "cachealloc: error: a b [31m c\n");
	assert_string_equal(next_line(), "");
}

static void
test_cap(void **state)
{
	ca_log_configure(CA_LOG_INFO, "");
	for (int i = 0; i < CA_LOG_CAP; i++) {
		ca_warn("%d", i);
		assert_true(line_number(next_line()) == i);
	}
	ca_warn("one too many");
	assert_string_equal(
		next_line(),
		"cachealloc: warning: 256 lines of this level so far; no more are shown\n");
	ca_warn("more");
	assert_string_equal(next_line(), "");
	ca_info("another level");
	assert_string_equal(next_line(), "cachealloc: info: another level\n");
}

static void
test_file(void **state)
{
	char pattern[256];

	ca_log_configure(CA_LOG_WARN, in_folder(pattern, "sub/log.txt"));
	ca_info("below the level");
	assert_int_equal(file_count(), 0); /* not opened before the first line */
	ca_warn("one");
	ca_error("two");
	assert_string_equal(file_text("sub/log.txt"),
			    "cachealloc: warning: one\ncachealloc: error: two\n");
	assert_string_equal(next_line(), "");
	assert_true(find_descriptor("sub/log.txt") >= 512);
}

static void
test_file_fails(void **state)
{
	char pattern[256], expected[512];

	snprintf(expected, sizeof(expected),
		 "cachealloc: warning: CACHEALLOC_LOG_FILE: '%s/sub/log' cannot be opened: not a "
		 "folder "
		 "(errno 20); lines go to stderr\n",
		 folder);
	close(open(in_folder(pattern, "sub"), O_CREAT | O_WRONLY, 0600));
	ca_log_configure(CA_LOG_WARN, in_folder(pattern, "sub/log"));
	errno = 77;
	ca_error("one");
	assert_int_equal(errno, 77);
	assert_string_equal(next_line(), expected);
	assert_string_equal(next_line(), "cachealloc: error: one\n");
	ca_error("two");
	assert_string_equal(next_line(), "cachealloc: error: two\n");
	assert_string_equal(next_line(), "");
}

/* The program closes all descriptors and opens its own data under our number. */
static void
test_descriptor_taken(void **state)
{
	char path[256];
	int fd, data;

	ca_log_configure(CA_LOG_WARN, in_folder(path, "log.txt"));
	ca_warn("one");
	fd = find_descriptor("log.txt");
	assert_true(fd > 2);
	data = open(in_folder(path, "data"), O_CREAT | O_WRONLY, 0600);
	assert_int_equal(dup2(data, fd), fd);
	ca_warn("two");
	assert_string_equal(file_text("data"), "");
	assert_string_equal(file_text("log.1.txt"), "cachealloc: warning: two\n");
	close(find_descriptor("log.1.txt"));
	ca_warn("three");
	assert_string_equal(file_text("log.2.txt"), "cachealloc: warning: three\n");
	assert_int_equal(write(fd, "still open", 10), 10); /* we did not close what is not ours */
	assert_string_equal(file_text("data"), "still open");
	close(fd);
	close(data);
}

/* A program that closes it for ever gets a handful of files, then stderr. */
static void
test_descriptor_lost_for_ever(void **state)
{
	char path[256];

	ca_log_configure(CA_LOG_WARN, in_folder(path, "log"));
	for (int i = 0; i < 20; i++) {
		ca_warn("%d", i);
		close_range(512, 1023, 0);
	}
	assert_int_equal(file_count(), 8);
	next_line();
	assert_non_null(strstr(line, "lines go to stderr"));
	for (int i = 8; i < 20; i++) {
		next_line();
		assert_int_equal(line_number(line), i);
	}
}

static void
test_fork(void **state)
{
	char path[256];
	int status;
	pid_t child;

	ca_log_configure(CA_LOG_WARN, in_folder(path, "log.txt"));
	ca_warn("parent");
	child = fork();
	if (!child) {
		ca_log_after_fork_child();
		ca_warn("child");
		_exit(find_descriptor("log.txt") >= 0); /* the parent's is closed here */
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	ca_warn("parent again");
	assert_string_equal(file_text("log.txt"),
			    "cachealloc: warning: parent\ncachealloc: warning: parent again\n");
	assert_string_equal(file_text("log.1.txt"), "cachealloc: warning: child\n");
}

/* Nobody reads stderr, or there is none: the line is lost, the program lives. */
static void
test_stderr_gone(void **state)
{
	int status;
	pid_t child = fork();

	if (!child) {
		int ends[2];

		if (pipe(ends))
			_exit(1);
		dup2(ends[1], STDERR_FILENO);
		close(ends[0]);
		ca_error("to a closed pipe");
		close(STDERR_FILENO);
		ca_error("to nothing");
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

enum { THREADS = 8, LINES = 30 };
static pthread_barrier_t start;

static void *
thread_main(void *arg)
{
	pthread_barrier_wait(&start);
	for (int i = 0; i < LINES; i++)
		ca_warn("thread %d line %d end", *(int *)arg, i);
	return NULL;
}

/* All lines whole, each thread's in its order, all in one file. */
static void
test_threads(void **state)
{
	pthread_t threads[THREADS];
	int numbers[THREADS], next[THREADS] = { 0 }, count = 0;
	char path[256], expected[128], *save, *text;

	ca_log_configure(CA_LOG_WARN, in_folder(path, "log.txt"));
	pthread_barrier_init(&start, NULL, THREADS);
	for (int i = 0; i < THREADS; i++) {
		numbers[i] = i;
		assert_int_equal(pthread_create(&threads[i], NULL, thread_main, &numbers[i]), 0);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	pthread_barrier_destroy(&start);
	text = strdup(file_text("log.txt"));
	for (char *at = strtok_r(text, "\n", &save); at; at = strtok_r(NULL, "\n", &save)) {
		const char *rest = at + strcspn(at, "0123456789");
		long thread = check_number(&rest), number;

		rest += strcspn(rest, "0123456789");
		number = check_number(&rest);
		assert_in_range(thread, 0, THREADS - 1);
		snprintf(expected, sizeof(expected), "cachealloc: warning: thread %ld line %ld end",
			 thread, number);
		assert_string_equal(at, expected);
		assert_int_equal(number, next[thread]++);
		count++;
	}
	free(text);
	assert_int_equal(count, THREADS * LINES);
	assert_int_equal(file_count(), 1);
	assert_string_equal(next_line(), "");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_levels, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_one_line, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_cap, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_file, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_file_fails, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_descriptor_taken, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_descriptor_lost_for_ever, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_fork, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_stderr_gone, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_threads, set_up, tear_down),
	};

	return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
