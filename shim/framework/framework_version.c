/* SPDX-License-Identifier: MIT */
/*
 * The line looked for is `_version = "0.4.30"` (older: `__version__`), at the beginning of a line
 * and in the first bytes of the file; whatever else is there is no version.
 */
#include "shim/framework/framework_version.h"

#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "config/path.h"
#include "config/text.h"
#include "shim/bind/object.h"
#include "shim/bind/scope.h"

enum { FILE_BYTES = 4096 };

struct search {
	enum ca_framework framework;
	char file[CA_PATH_MAX]; /* version.py beside its library; "": none */
};

static bool
visit(const struct ca_object *object, void *arg)
{
	struct search *search = arg;
	const char *slash = strrchr(object->path, '/');

	if (!slash || ca_framework_of_object(object) != search->framework)
		return false;
	if (ca_text_format(search->file, sizeof(search->file), "%.*s/version.py",
			   (int)(slash - object->path), object->path) >= sizeof(search->file))
		search->file[0] = '\0';
	return true;
}

/* Not open() and read(): those are cancellation points. */
static bool
read_text(const char *path, char text[FILE_BYTES])
{
	long fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	long length;

	if (fd < 0)
		return false;
	length = syscall(SYS_read, (int)fd, text, FILE_BYTES - 1);
	syscall(SYS_close, (int)fd);
	text[length > 0 ? length : 0] = '\0';
	return length > 0;
}

/* The place behind `word` where it begins a line, or NULL. */
static const char *
line_find(const char *text, const char *word)
{
	const char *at = text;

	while ((at = strstr(at, word)) && at != text && at[-1] != '\n')
		at++;
	return at ? at + strlen(word) : NULL;
}

/* "12.34..." */
static bool
read_version(const char *text, unsigned ret_parts[2])
{
	for (unsigned i = 0; i < 2; i++) {
		if (*text < '0' || *text > '9')
			return false;
		for (ret_parts[i] = 0; *text >= '0' && *text <= '9' && ret_parts[i] < 100000;
		     text++)
			ret_parts[i] = ret_parts[i] * 10 + (unsigned)(*text - '0');
		if (i == 0 && *text++ != '.')
			return false;
	}
	return true;
}

static bool
is_before(const char *file, const char *limit)
{
	char text[FILE_BYTES];
	unsigned found[2], wanted[2];
	const char *at;

	if (!read_text(file, text))
		return false;
	at = line_find(text, "_version = \"");
	at = at ? at : line_find(text, "__version__ = \"");
	if (!at || !read_version(at, found) || !read_version(limit, wanted))
		return false;
	return found[0] < wanted[0] || (found[0] == wanted[0] && found[1] < wanted[1]);
}

bool
ca_framework_is_before(enum ca_framework framework, const char *limit)
{
	struct search search = { .framework = framework };
	CA_KEEP_ERRNO;

	return ca_object_walk(visit, &search) && search.file[0] && is_before(search.file, limit);
}
