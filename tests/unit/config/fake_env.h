/* SPDX-License-Identifier: MIT */
/* A table in place of the environment, and a list of the lines that were reported. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "config/config.h"

enum { FAKE_VARIABLES = 12, FAKE_LINES = 80, FAKE_LINE_BYTES = 2048 };

struct fake_env {
	const char *name[FAKE_VARIABLES]; /* NULL: end */
	const char *value[FAKE_VARIABLES];
	char *const *environ_names;
	int lines; /* reported, kept or not */
	char line[FAKE_LINES][FAKE_LINE_BYTES];
};

/* Adds, replaces, or with value NULL removes. */
static inline void
fake_set(struct fake_env *env, const char *name, const char *value)
{
	int i = 0;

	while (env->name[i] && strcmp(env->name[i], name) != 0)
		i++;
	env->name[i] = name;
	env->value[i] = value;
}

static inline const char *
fake_get(void *arg, const char *name)
{
	struct fake_env *env = arg;

	for (int i = 0; i < FAKE_VARIABLES && env->name[i]; i++)
		if (!strcmp(env->name[i], name))
			return env->value[i];
	return NULL;
}

static inline void
fake_report(void *arg, const char *line)
{
	struct fake_env *env = arg;

	if (env->lines < FAKE_LINES)
		snprintf(env->line[env->lines], FAKE_LINE_BYTES, "%s", line);
	env->lines++;
}

static inline int
fake_load(struct fake_env *env, struct ca_config *ret_config)
{
	env->lines = 0;
	memset(ret_config, 0xa5, sizeof(*ret_config));
	return ca_config_load(ret_config, fake_get, env, env->environ_names, fake_report, env);
}

/* All variables set to something that is not their default. */
static inline void
fake_good(struct fake_env *env, const char *conf)
{
	memset(env, 0, sizeof(*env));
	fake_set(env, "CACHEALLOC_STRICT", "1");
	fake_set(env, "CACHEALLOC_DISABLE", "count");
	fake_set(env, "CACHEALLOC_LOG", "debug");
	fake_set(env, "CACHEALLOC_LOG_FILE", "log.%p");
	fake_set(env, "CACHEALLOC_STATS", "stats.%p.json");
	fake_set(env, "CACHEALLOC_STATS_INTERVAL", "10s");
	fake_set(env, "CACHEALLOC_CONF", conf);
}
