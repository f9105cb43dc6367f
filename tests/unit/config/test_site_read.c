/* SPDX-License-Identifier: MIT */
/* config/site_read.c: which files are read. As another user than root: only which are not. */
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "config/site.h"
#include "tests/unit/config/check.h"

static char folder[] = "/tmp/ca-site-XXXXXX", path[64];
static char text[CA_SITE_BYTES_MAX + 1];

/* Replaces the file at `path`. */
static void
make(off_t bytes, mode_t mode)
{
	int fd;

	remove(path);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, bytes), 0);
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
}

static int
look(const char **ret_reason)
{
	size_t length = 12345;
	int r;

	errno = 77;
	r = ca_site_read(path, text, CA_SITE_BYTES_MAX, &length, ret_reason);
	assert_int_equal(errno, 77);
	assert_true(r == 0 || r == -ENOENT || *ret_reason);
	assert_true(r != 0 || (!*ret_reason && length <= CA_SITE_BYTES_MAX));
	assert_true(r == 0 || length == 12345);
	return r;
}

static void
refused(const char *why)
{
	const char *reason;

	assert_true(look(&reason) < 0);
	assert_string_equal(reason, why);
}

static void
test_none(void **state)
{
	const char *reason = "";

	remove(path);
	assert_int_equal(look(&reason), -ENOENT);
	assert_null(reason);
	assert_int_equal(ca_site_read("/dev/null/a", text, 1, &(size_t){ 0 }, &reason), -ENOENT);
	assert_null(reason);
}

static void
test_other_kinds(void **state)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd;

	remove(path);
	assert_int_equal(mkdir(path, 0755), 0);
	refused("it is not a regular file");
	remove(path);
	assert_int_equal(mkfifo(path, 0644), 0);
	refused("it is not a regular file");
	remove(path);
	assert_int_equal(symlink("/etc/passwd", path), 0);
	refused("it is a symbolic link");
	remove(path);
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	refused("it is not a regular file");
	close(fd);
}

static void
test_owner(void **state)
{
	make(10, 0644);
	if (!getuid())
		assert_int_equal(chown(path, 1234, 0), 0);
	refused("it does not belong to root");
}

static void
test_modes(void **state)
{
	static const mode_t bad[] = { 0664, 0646, 0666, 0622, 0777, 02664 };
	static const mode_t good[] = { 0644, 0600, 0444, 0755, 0400, 04755 };
	const char *reason;

	if (getuid())
		skip();
	for (unsigned i = 0; i < 6; i++) {
		make(10, bad[i]);
		refused("others than root may write to it");
		make(10, good[i]);
		assert_int_equal(look(&reason), 0);
	}
}

static void
test_sizes(void **state)
{
	const char *reason;

	if (getuid())
		skip();
	make((off_t)1 << 30, 0644);
	refused("it is larger than 64 KiB");
	make(CA_SITE_BYTES_MAX + 1, 0644);
	refused("it is larger than 64 KiB");
	make(CA_SITE_BYTES_MAX, 0644);
	assert_int_equal(look(&reason), 0);
	make(0, 0644);
	assert_int_equal(look(&reason), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_none),  cmocka_unit_test(test_other_kinds),
		cmocka_unit_test(test_owner), cmocka_unit_test(test_modes),
		cmocka_unit_test(test_sizes),
	};
	int failed;

	if (!mkdtemp(folder))
		return 1;
	snprintf(path, sizeof(path), "%s/site.conf", folder);
	failed = cmocka_run_group_tests_name("site_read", tests, NULL, NULL);
	remove(path);
	rmdir(folder);
	return failed;
}
