/* SPDX-License-Identifier: MIT */
/*
 * Bytes that are not ASCII are shown as '?', so that the text is UTF-8 whatever the program's words
 * are. The environment is read anew each time: a program may have set CACHEALLOC_CONF for its
 * children, and that is told as it is.
 */
#include "shim/process/identity.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "config/path.h"
#include "config/text.h"
#include "shim/bind/libcuda.h"
#include "shim/bind/scope.h"
#include "shim/state/process.h"

static _Atomic uint64_t last_number;

static void
only_plain_bytes(char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text >= 0x7f)
			*text = '?';
}

static void
expand(const char *pattern, char ret_word[CA_IDENTITY_WORD])
{
	if (ca_path_expand(pattern, ret_word, CA_IDENTITY_WORD))
		ret_word[0] = '\0';
}

/* The words, a space between two. */
static void
read_command(char ret_text[CA_IDENTITY_TEXT])
{
	/* not open(), read() and close(): those are cancellation points */
	int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
	ssize_t length = fd < 0 ? 0 : syscall(SYS_read, fd, ret_text, CA_IDENTITY_TEXT - 1);

	if (fd >= 0)
		syscall(SYS_close, fd);
	while (length > 0 && !ret_text[length - 1])
		length--;
	for (ssize_t i = 0; i < length; i++)
		if (!ret_text[i])
			ret_text[i] = ' ';
	ret_text[length > 0 ? length : 0] = '\0';
	only_plain_bytes(ret_text);
}

/* As a number of JSON's. */
static const char *
without_zeros(const char *digits)
{
	while (digits[0] == '0' && digits[1])
		digits++;
	return digits;
}

static int
driver_version(void)
{
	const struct ca_real *real = ca_real();
	int version = 0;

	if (!real || !real->cuDriverGetVersion || CA_INSIDE(real->cuDriverGetVersion(&version)))
		return 0;
	return version;
}

void
ca_identity_read(struct ca_identity *ret_identity, uint64_t elapsed_ns)
{
	const char *conf = secure_getenv("CACHEALLOC_CONF");
	struct ca_emit_identity *to = &ret_identity->emitted;
	struct timespec now;
	CA_KEEP_ERRNO;

	clock_gettime(CLOCK_REALTIME, &now);
	expand("%h", ret_identity->host);
	expand("%e", ret_identity->program);
	expand("%r", ret_identity->rank);
	read_command(ret_identity->command);
	if (conf) {
		ca_text_format(ret_identity->conf, sizeof(ret_identity->conf), "%s", conf);
		only_plain_bytes(ret_identity->conf);
	}
	*to = (struct ca_emit_identity){
		.time_unix_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec,
		.elapsed_ns = elapsed_ns,
		.pid = getpid(),
		.parent_pid = getppid(),
		.host = ret_identity->host,
		.program = ret_identity->program,
		.rank = ca_path_has_rank() ? without_zeros(ret_identity->rank) : NULL,
		.command = ret_identity->command,
		.conf = conf ? ret_identity->conf : NULL,
		.driver_version = driver_version(),
	};
}

void
ca_identity_number(struct ca_identity *identity)
{
	identity->emitted.seq = atomic_fetch_add(&last_number, 1) + 1;
}

void
ca_identity_after_fork_child(void)
{
	atomic_store(&last_number, 0);
}
