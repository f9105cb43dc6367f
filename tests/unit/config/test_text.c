/* SPDX-License-Identifier: MIT */
/* config/text.c: the formatter agrees with snprintf
 * where both know the format, and never overruns. */
#include "config/text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/config/check.h"

#define SAME(...)                                                                                  \
	do {                                                                                       \
		char ours[256], theirs[256];                                                       \
		int n = snprintf(theirs, sizeof(theirs), __VA_ARGS__);                             \
		assert_int_equal(ca_text_format(ours, sizeof(ours), __VA_ARGS__), n);              \
		assert_string_equal(ours, theirs);                                                 \
	} while (0)

static void
test_same_as_snprintf(void **state)
{
	SAME("plain");
	SAME("%%|%c|%s|%s", 'x', "word", "");
	SAME("%d %d %d %i", 0, INT_MAX, INT_MIN, -7);
	SAME("%u %x", UINT_MAX, 0xdeadbeefu);
	SAME("%ld %lu %lx", LONG_MIN, ULONG_MAX, ULONG_MAX);
	SAME("%lld %llu %llx", LLONG_MIN, ULLONG_MAX, ULLONG_MAX);
	SAME("%zu", (size_t)-1);
	SAME("%p", (void *)&state);
	SAME("[%5d][%-5d][%05d][%05d]", 42, 42, 42, -42);
	SAME("[%8s][%-8s][%.2s][%5.1s]", "abc", "abc", "abc", "abc");
	SAME("[%*d][%-*d][%.*s]", 6, 1, 6, 1, 2, "abc");
	SAME("[%*d]", -6, 1);
	SAME("[%2s][%1d]", "longer", 12345);
	SAME("[%3c][%-3c]", 'a', 'b');
	SAME("[%02u:%08llx]", 5u, 0x1fULL);
}

static void
test_random_numbers(void **state)
{
	uint64_t seed = check_seed("text");

	for (int i = 0; i < 20000; i++) {
		uint64_t value = check_random(&seed) >> (check_random(&seed) % 64);
		int width = (int)(check_random(&seed) % 30) - 15;

		SAME("%*lld|%llu|%llx|%d", width, (long long)value, (unsigned long long)value,
		     (unsigned long long)value, (int)value);
	}
}

static void
test_cut(void **state)
{
	char small[8];

	memset(small, 'Z', sizeof(small));
	assert_int_equal(ca_text_format(small, 4, "%s", "abcdef"), 6);
	assert_string_equal(small, "abc");
	assert_int_equal(small[4], 'Z');
	assert_int_equal(ca_text_format(small, 1, "%d", 123), 3);
	assert_string_equal(small, "");
	assert_int_equal(ca_text_format(NULL, 0, "%s", "abc"), 3);
	assert_int_equal(ca_text_format(small, sizeof(small), "%s", "1234567"), 7);
	assert_string_equal(small, "1234567");
}

/* A string that is not terminated is fine while the precision keeps us inside. */
static void
test_precision_bounds(void **state)
{
	char *raw = malloc(3), out[8];

	/* without its end, on purpose: NOLINTNEXTLINE(bugprone-not-null-terminated-result) */
	memcpy(raw, "abc", 3);
	ca_text_format(out, sizeof(out), "%.3s", raw);
	assert_string_equal(out, "abc");
	free(raw);
}

__attribute__((format(printf, 2, 0))) static void
format_unchecked(char *ret, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	ca_text_format_va(ret, 64, format, args);
	va_end(args);
}

static void
test_unknown_conversion(void **state)
{
	/* not literals, or the compiler would refuse them */
	const char *volatile unknown = "%d %q %d", *volatile null = "%s", *volatile half = "50%";
	char out[64];

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	format_unchecked(out, unknown, 1, 2);
	assert_string_equal(out, "1 %q %d");
	format_unchecked(out, null, (char *)NULL);
	assert_string_equal(out, "(null)");
	format_unchecked(out, half);
	assert_string_equal(out, "50%");
#pragma GCC diagnostic pop
}

static void
test_bytes(void **state)
{
	static const struct {
		uint64_t bytes;
		const char *text;
	} rows[] = {
		{ 0, "0 B" },
		{ 512, "512 B" },
		{ 1023, "1023 B" },
		{ 1024, "1.00 KiB" },
		{ 1280, "1.25 KiB" },
		{ 1048575, "1.00 MiB" },
		{ 20 << 20, "20.00 MiB" },
		{ 5ULL << 28, "1.25 GiB" },
		{ (1ULL << 40) - 1, "1.00 TiB" },
		{ (1ULL << 50) + (1ULL << 49), "1.50 PiB" },
		{ 1022ULL << 20, "1022.00 MiB" },
		{ UINT64_MAX, "16.00 EiB" },
	};
	char text[CA_TEXT_SIZE_MAX];

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_string_equal(ca_text_bytes(text, rows[i].bytes), rows[i].text);
	for (unsigned shift = 0; shift < 64; shift++)
		for (int delta = -1; delta <= 1; delta++)
			assert_true(strlen(ca_text_bytes(text, (1ULL << shift) + (uint64_t)delta)) <
				    CA_TEXT_SIZE_MAX);
}

static void
test_escape(void **state)
{
	char out[16];

	assert_string_equal(ca_text_escape(out, sizeof(out), "plain"), "plain");
	assert_string_equal(ca_text_escape(out, sizeof(out), "a\nb\x1b\x80"), "a\\x0ab\\x1b\\x80");
	assert_string_equal(ca_text_escape(out, sizeof(out), "123456789012345"), "123456789012345");
	assert_string_equal(ca_text_escape(out, sizeof(out), "1234567890123456"),
			    "123456789012...");
	assert_string_equal(ca_text_escape(out, sizeof(out), "\n\n\n\n\n"), "\\x0a\\x0a\\x0a...");
	assert_string_equal(ca_text_escape(out, sizeof(out), ""), "");
}

static void
test_write(void **state)
{
	char read_back[8] = "";
	int ends[2];

	assert_int_equal(pipe(ends), 0);
	errno = 77;
	assert_int_equal(ca_text_write(ends[1], "hello", 5), 0);
	assert_int_equal(errno, 77);
	assert_int_equal(read(ends[0], read_back, sizeof(read_back)), 5);
	assert_string_equal(read_back, "hello");
	close(ends[0]);
	/* SIGPIPE is at its default here: it would end this process */
	assert_int_equal(ca_text_write(ends[1], "hello", 5), -EPIPE);
	assert_int_equal(errno, 77);
	close(ends[1]);
	assert_int_equal(ca_text_write(ends[1], "hello", 5), -EBADF);
}

/* A SIGPIPE that was pending before belongs to the program and stays. */
static void
test_write_keeps_pending(void **state)
{
	sigset_t set, before;
	int ends[2];

	sigemptyset(&set);
	sigaddset(&set, SIGPIPE);
	sigprocmask(SIG_BLOCK, &set, &before);
	assert_int_equal(raise(SIGPIPE), 0);
	assert_int_equal(pipe(ends), 0);
	close(ends[0]);
	assert_int_equal(ca_text_write(ends[1], "x", 1), -EPIPE);
	sigpending(&set);
	assert_true(sigismember(&set, SIGPIPE));
	sigemptyset(&set);
	sigaddset(&set, SIGPIPE);
	assert_int_equal(sigtimedwait(&set, NULL, &(struct timespec){ 0 }), SIGPIPE);
	sigprocmask(SIG_SETMASK, &before, NULL);
	close(ends[1]);
}

/* Past the file-size limit a write raises SIGXFSZ, which ends a process by default. */
static void
test_write_at_size_limit(void **state)
{
	char name[] = "/tmp/ca-text-XXXXXX";
	int fd = mkstemp(name), status;
	pid_t child;

	assert_true(fd >= 0);
	unlink(name);
	child = fork();
	if (!child) {
		struct rlimit limit = { 4, 4 };

		setrlimit(RLIMIT_FSIZE, &limit);
		_exit(ca_text_write(fd, "hello", 5) == -EFBIG ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	close(fd);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same_as_snprintf),
		cmocka_unit_test(test_random_numbers),
		cmocka_unit_test(test_cut),
		cmocka_unit_test(test_precision_bounds),
		cmocka_unit_test(test_unknown_conversion),
		cmocka_unit_test(test_bytes),
		cmocka_unit_test(test_escape),
		cmocka_unit_test(test_write),
		cmocka_unit_test(test_write_keeps_pending),
		cmocka_unit_test(test_write_at_size_limit),
	};

	return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
