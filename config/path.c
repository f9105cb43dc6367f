/* SPDX-License-Identifier: MIT */
/*
 * From a pattern to a file that nobody else has.
 *
 * A letter after '%' has a width (the longest text it can stand for) and a way to print it; check()
 * adds up the widths, expand() prints. Text from outside the process (host, rank, program) is
 * reduced to harmless characters first, because it may become part of a path.
 *
 * The kernel decides which process gets a name: O_EXCL fails when it exists, and then the next
 * number is tried. So two threads, two ranks or a parent and its child never share a file, and no
 * file that was there before is touched. Parent folders are made only when the open has failed for
 * want of one.
 */
#include "config/path.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "config/log.h"
#include "config/text.h"

enum {
	WORD_MAX = 64,     /* longest host or program name, with the terminator */
	RANK_MAX = 10,     /* digits of a rank */
	NUMBER_MAX = 20,   /* digits of a 64-bit number */
	TRIES = 9999,      /* highest .N */
	TRIES_WIDTH = 5,   /* ".9999" */
	SHOWN_BYTES = 400, /* of a name, in a log line with two */
};

/* Set at the first use of a rank, since the environment may change under us later. */
static _Atomic int rank_state; /* 0: unread, 1: being read, 2: read */
static char rank_text[RANK_MAX + 1];
static _Atomic bool rank_found; /* some launcher has set it */
static _Atomic unsigned counter;

/* Into WORD_MAX bytes. */
static void
word_copy(char *ret, const char *word)
{
	ca_text_format(ret, WORD_MAX, "%s", word);
}

static void
word_clean(char *word)
{
	for (char *at = word; *at; at++) {
		bool good = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') ||
			    (*at >= '0' && *at <= '9') || *at == '-' || *at == '_' ||
			    (*at == '.' && at != word);

		if (!good)
			*at = '_';
	}
}

static bool
rank_valid(const char *value)
{
	size_t length = value ? strlen(value) : 0;

	return length > 0 && length <= RANK_MAX && strspn(value, "0123456789") == length;
}

static void
rank_find(char *ret)
{
	/* a launcher inside a job of another one knows better: the innermost first, Slurm's last */
	static const char *const names[] = {
		"RANK",           "OMPI_COMM_WORLD_RANK", "PMIX_RANK",
		"PMI_RANK",       "MV2_COMM_WORLD_RANK",  "PALS_RANKID",
		"FLUX_TASK_RANK", "JSM_NAMESPACE_RANK",   "SLURM_PROCID",
		"LOCAL_RANK"
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const char *value = secure_getenv(names[i]);

		if (rank_valid(value)) {
			word_copy(ret, value);
			atomic_store(&rank_found, true);
			return;
		}
	}
	word_copy(ret, "0");
}

static void
rank_get(char *ret)
{
	int unread = 0;

	if (atomic_load_explicit(&rank_state, memory_order_acquire) == 2) {
		word_copy(ret, rank_text);
		return;
	}
	rank_find(ret);
	if (atomic_compare_exchange_strong(&rank_state, &unread, 1)) {
		memcpy(rank_text, ret, sizeof(rank_text));
		atomic_store_explicit(&rank_state, 2, memory_order_release);
	}
}

bool
ca_path_has_rank(void)
{
	char rank[WORD_MAX];

	rank_get(rank);
	return atomic_load(&rank_found);
}

static void
host_get(char *ret)
{
	struct utsname names;

	ret[0] = '\0';
	if (!uname(&names)) {
		memcpy(ret, names.nodename, WORD_MAX - 1);
		ret[WORD_MAX - 1] = '\0';
	}
	word_clean(ret);
	if (!*ret)
		word_copy(ret, "localhost");
}

static void
program_get(char *ret)
{
	char exe[CA_PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	const char *base;

	exe[length > 0 ? length : 0] = '\0';
	base = strrchr(exe, '/');
	base = base ? base + 1 : program_invocation_short_name;
	ca_text_format(ret, WORD_MAX, "%s", base ? base : "");
	word_clean(ret);
	if (!*ret)
		word_copy(ret, "program");
}

/* The longest text that %letter can stand for; 0: unknown letter. */
static size_t
char_width(char letter)
{
	switch (letter) {
	case 'p':
	case 't':
	case 'n':
		return NUMBER_MAX;
	case 'h':
	case 'e':
		return WORD_MAX - 1;
	case 'r':
		return RANK_MAX;
	case '%':
		return 1;
	default:
		return 0;
	}
}

/* Prints what %letter stands for; ret has WORD_MAX bytes.
 * `number` is %n's value, 0 until it is asked for. */
static void
char_expand(char letter, unsigned *number, char *ret)
{
	struct timespec now = { 0 };

	switch (letter) {
	case 'p':
		ca_text_format(ret, WORD_MAX, "%d", (int)getpid());
		break;
	case 't':
		clock_gettime(CLOCK_REALTIME, &now);
		ca_text_format(ret, WORD_MAX, "%lld", (long long)now.tv_sec);
		break;
	case 'n':
		if (!*number)
			*number = atomic_fetch_add(&counter, 1) + 1;
		ca_text_format(ret, WORD_MAX, "%u", *number);
		break;
	case 'h':
		host_get(ret);
		break;
	case 'e':
		program_get(ret);
		break;
	case 'r':
		rank_get(ret);
		break;
	default:
		ret[0] = letter;
		ret[1] = '\0';
		break;
	}
}

static bool
place_allowed(const char *pattern)
{
	if (!strncmp(pattern, "/dev/", 5))
		return !strncmp(pattern, "/dev/shm/", 9);
	return strncmp(pattern, "/proc/", 6) != 0 && strncmp(pattern, "/sys/", 5) != 0;
}

int
ca_path_check(const char *pattern)
{
	char rank[WORD_MAX];
	size_t length = 0;
	char last = '/'; /* an empty pattern names no file either */
	int saved = errno;

	if (!place_allowed(pattern))
		return -EPERM;
	for (const char *at = pattern; *at; at++) {
		last = *at;
		if (*at != '%') {
			length++;
			continue;
		}
		at++;
		if (!char_width(*at))
			return -EINVAL;
		if (*at == 'r') /* while the environment is as the program was given it */
			rank_get(rank);
		length += char_width(*at);
	}
	errno = saved;
	if (last == '/')
		return -EISDIR;
	return length + TRIES_WIDTH < CA_PATH_MAX ? 0 : -ENAMETOOLONG;
}

int
ca_path_expand(const char *pattern, char *ret_path, size_t size)
{
	char path[CA_PATH_MAX], word[WORD_MAX];
	unsigned number = 0;
	size_t length = 0;
	int saved = errno;

	for (const char *at = pattern; *at; at++) {
		size_t n;

		word[0] = *at;
		word[1] = '\0';
		if (*at == '%') {
			at++;
			if (!char_width(*at))
				return -EINVAL;
			char_expand(*at, &number, word);
		}
		n = strlen(word);
		if (length + n >= sizeof(path) || length + n >= size)
			return -ENAMETOOLONG;
		memcpy(path + length, word, n);
		length += n;
	}
	path[length] = '\0';
	errno = saved;
	if (length >= size)
		return -ENAMETOOLONG;
	memcpy(ret_path, path, length + 1);
	return 0;
}

static void
parents_make(const char *path)
{
	char part[CA_PATH_MAX];

	for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		size_t length = (size_t)(slash - path);

		memcpy(part, path, length);
		part[length] = '\0';
		mkdir(part, 0700); /* a failure shows in the open that follows */
	}
}

/* "dir/name.json" and 2 give "dir/name.2.json". */
static int
name_number(const char *path, unsigned number, char *ret)
{
	const char *base = strrchr(path, '/'), *suffix;
	size_t stem;

	base = base ? base + 1 : path;
	suffix = strrchr(base, '.');
	if (!suffix || suffix == base)
		suffix = base + strlen(base);
	stem = (size_t)(suffix - path);
	if (ca_text_format(ret, CA_PATH_MAX, "%.*s.%u%s", (int)stem, path, number, suffix) >=
	    CA_PATH_MAX)
		return -ENAMETOOLONG;
	return 0;
}

static int
file_create(const char *path)
{
	/* not open(): that is a cancellation point */
	long fd = syscall(SYS_openat, AT_FDCWD, path,
			  O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

	return fd < 0 ? -errno : (int)fd;
}

/* True if the name leads to a folder, a device, a pipe or a socket:
 * numbering would litter beside it. */
static bool
taken_by_other_kind(const char *path)
{
	struct statx info;

	return !statx(AT_FDCWD, path, 0, STATX_TYPE, &info) && !S_ISREG(info.stx_mode);
}

int
ca_path_open_as(const char *pattern, char *ret_path, char *ret_wanted)
{
	char path[CA_PATH_MAX], name[CA_PATH_MAX];
	int saved = errno;
	int r = ca_path_expand(pattern, path, sizeof(path));

	if (r < 0)
		return r;
	memcpy(name, path, sizeof(name));
	r = file_create(name);
	if (r == -ENOENT) {
		parents_make(name);
		r = file_create(name);
	}
	if (r == -EEXIST && !taken_by_other_kind(name)) {
		for (unsigned i = 1; r == -EEXIST && i <= TRIES; i++) {
			r = name_number(path, i, name);
			if (!r)
				r = file_create(name);
		}
	}
	if (r >= 0 && ret_path)
		memcpy(ret_path, name, sizeof(name));
	if (r >= 0 && ret_wanted)
		ca_text_format(ret_wanted, CA_PATH_MAX, "%s", strcmp(path, name) ? path : "");
	errno = saved;
	return r;
}

int
ca_path_open(const char *pattern, char *ret_path)
{
	return ca_path_open_as(pattern, ret_path, NULL);
}

int
ca_path_open_told(const char *variable, const char *pattern, char *ret_path)
{
	char wanted[CA_PATH_MAX], shown[SHOWN_BYTES], shown_wanted[SHOWN_BYTES];
	int r = ca_path_open_as(pattern, ret_path, wanted);

	if (r >= 0 && wanted[0])
		ca_warn("%s: '%s' exists already and is left as it is: this goes to '%s'", variable,
			ca_text_escape(shown_wanted, sizeof(shown_wanted), wanted),
			ca_text_escape(shown, sizeof(shown), ret_path));
	return r;
}
