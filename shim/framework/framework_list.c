/* SPDX-License-Identifier: MIT */
#include "shim/framework/framework_list.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "config/log.h"
#include "config/text.h"
#include "shim/bind/object.h"
#include "shim/framework/framework.h"
#include "shim/framework/framework_version.h"

static const struct {
	const char *name, *take_over;
	const char *owner[2]; /* alone, and with others */
} frameworks[] = {
#define CA_FRAMEWORK(id, name, take_over) { name, take_over, { name "'s", name "'s and others'" } },
#include "shim/framework/frameworks.def"
};

static const struct {
	enum ca_framework framework;
	const char *pattern;
} files[] = {
#define CA_FRAMEWORK_FILE(id, pattern) { CA_FRAMEWORK_##id, pattern },
#include "shim/framework/frameworks.def"
};

static const struct {
	enum ca_framework framework;
	const char *variable, *value;
} switches[] = {
#define CA_FRAMEWORK_OFF(id, variable, value) { CA_FRAMEWORK_##id, variable, value },
#include "shim/framework/frameworks.def"
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static _Atomic unsigned told; /* two bits a framework: that it passes, that its cache is off */

static bool
begins(const char *name, const char *with)
{
	return !strncmp(name, with, strlen(with));
}

static bool
matches(const struct ca_object *object, const char *pattern)
{
	const char *slash = strrchr(object->path, '/');

	if (strchr(pattern, '/'))
		return strstr(object->path, pattern);
	return begins(object->soname, pattern) || begins(slash ? slash + 1 : object->path, pattern);
}

enum ca_framework
ca_framework_of_object(const struct ca_object *object)
{
	for (size_t i = 0; i < COUNT(files); i++)
		if (matches(object, files[i].pattern))
			return files[i].framework;
	return CA_FRAMEWORKS;
}

static bool
contains_dropping_space(const char *text, const char *word)
{
	for (; *text; text++) {
		const char *at = text, *want = word;

		for (; *want && *at; at++) {
			if (strchr(" \t\n\v\f\r", *at))
				continue;
			if (*at != *want)
				break;
			want++;
		}
		if (!*want)
			return true;
	}
	return false;
}

/* "platform<0.10": that word, in versions before that. */
static bool
is_value(enum ca_framework framework, const char *value, const char *wanted)
{
	const char *limit = strchr(wanted, '<');

	if (!limit)
		return !strcmp(value, wanted);
	return strlen(value) == (size_t)(limit - wanted) && begins(wanted, value) &&
	       ca_framework_is_before(framework, limit + 1);
}

/* The variable that says so, or NULL. */
static const char *
switched_off(enum ca_framework framework)
{
	bool decided = false;

	for (size_t i = 0; i < COUNT(switches); i++) {
		bool is_list = strchr(switches[i].value, ':');
		const char *value;

		if (switches[i].framework != framework || (is_list && decided))
			continue;
		value = secure_getenv(switches[i].variable);
		if (!value)
			continue;
		decided = decided || is_list;
		if (is_list ? contains_dropping_space(value, switches[i].value)
			    : is_value(framework, value, switches[i].value))
			return switches[i].variable;
	}
	return NULL;
}

static bool
visit(const struct ca_object *object, void *arg)
{
	unsigned *seen = arg;
	enum ca_framework owner = ca_framework_of_object(object);

	if (owner != CA_FRAMEWORKS)
		*seen |= 1u << owner;
	return false;
}

static bool
first_time(unsigned bit)
{
	return !(atomic_fetch_or(&told, 1u << bit) >> bit & 1);
}

static void
report_off(unsigned seen)
{
	for (unsigned i = 0; i < CA_FRAMEWORKS; i++) {
		const char *variable = seen >> i & 1 ? switched_off(i) : NULL;

		if (variable && first_time(2 * i + 1))
			ca_info("%s's own cache is off (%s): what it asks of cudaMalloc is cached "
				"here",
				frameworks[i].name, variable);
	}
}

unsigned
ca_framework_read(const struct ca_config *config)
{
	unsigned seen = 0, off = 0;

	ca_object_walk(visit, &seen);
	for (unsigned i = 0; config->under_framework == CA_UNDER_AUTO && i < CA_FRAMEWORKS; i++)
		off |= seen >> i & 1 && switched_off(i) ? 1u << i : 0;
	if (off)
		report_off(off);
	return seen & ~off;
}

void
ca_framework_report_on(unsigned on)
{
	for (unsigned i = 0; i < CA_FRAMEWORKS; i++)
		if (on >> i & 1 && !(atomic_load(&told) >> (2 * i) & 1) && first_time(2 * i))
			ca_info("%s's own cache is on: requests go straight to the driver; to let "
				"cachealloc take over, %s",
				frameworks[i].name, frameworks[i].take_over);
}

const char *
ca_framework_that_passed(char *ret_off, size_t size)
{
	unsigned first = CA_FRAMEWORKS, count = 0;

	ret_off[0] = '\0';
	for (unsigned i = CA_FRAMEWORKS; i-- > 0;) {
		if (!(atomic_load(&told) >> (2 * i) & 1))
			continue;
		first = i;
		count++;
	}
	for (size_t i = 0; i < COUNT(switches) && !ret_off[0]; i++)
		if (switches[i].framework == first)
			ca_text_format(ret_off, size, "%s=%s", switches[i].variable,
				       switches[i].value);
	return count ? frameworks[first].owner[count > 1] : NULL;
}

void
ca_framework_forget_told(void)
{
	atomic_store(&told, 0);
}
