/* SPDX-License-Identifier: MIT */
/*
 * The environment: lines NAME=value, without the CACHEALLOC_ prefix (a line without = is
 * CACHEALLOC_CONF), or PyTorch's variables. Whatever the text: as many lines are reported as are
 * returned, each complete and printable; the configuration is a valid one; and what is printed of
 * it, set again, makes the same one without a complaint.
 */
#include <stdio.h>

#include "config/options.h"
#include "config/parse.h"
#include "tests/fuzz/valid.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LINES_MAX = 24, TEXT_MAX = 2 * CA_CONF_TEXT_MAX };

struct environment {
	char text[TEXT_MAX + 1]; /* of the lines */
	char conf[TEXT_MAX + 1]; /* keys that were printed */
	const char *name[LINES_MAX], *value[LINES_MAX];
	unsigned n;
	int reported;
	bool escaped; /* what was printed is not what was set, for it has odd bytes */
};

static void
put(struct environment *env, char *line)
{
	char *equals = strchr(line, '=');

	if (env->n == LINES_MAX)
		return;
	env->name[env->n] = equals ? line : "CONF";
	env->value[env->n++] = equals ? equals + 1 : line;
	if (equals)
		*equals = '\0';
}

/* Zero bytes end lines, too. */
static void
split(struct environment *env)
{
	char *line = env->text, *end;

	for (; *line; line = end + 1) {
		end = line + strcspn(line, "\n");
		if (!*end)
			end[1] = '\0'; /* there is room for it */
		*end = '\0';
		put(env, line);
	}
}

static const char *
get(void *arg, const char *name)
{
	const struct environment *env = arg;

	bool ours = !strncmp(name, "CACHEALLOC_", 11);

	require(ours || !strcmp(name, CA_TORCH_CONF) || !strcmp(name, CA_TORCH_CONF_NEW));
	for (unsigned i = 0; i < env->n; i++)
		if (!strcmp(env->name[i], ours ? name + 11 : name))
			return env->value[i];
	return NULL;
}

/* A line is for people: it names a setting, and has no byte that a terminal would obey. */
static void
report(void *arg, const char *line)
{
	struct environment *env = arg;

	env->reported++;
	require(!strncmp(line, "CACHEALLOC_", 11) && line[11]);
	for (; *line; line++)
		require((unsigned char)*line >= ' ' && *line != 0x7f);
}

/* A setting as it is printed, into the environment that it makes. */
static void
collect(void *arg, const char *line)
{
	struct environment *env = arg;
	size_t used = strlen(env->text), conf = strlen(env->conf);

	require(!strncmp(line, "CACHEALLOC_", 11));
	env->escaped = env->escaped || strchr(line, '\\');
	if (!strncmp(line, "CACHEALLOC_CONF=", 16))
		require(snprintf(env->conf + conf, sizeof(env->conf) - conf, "%s%s",
				 conf ? "," : "", line + 16) < TEXT_MAX);
	else
		require(snprintf(env->text + used, sizeof(env->text) - used, "%s\n", line + 11) <
			TEXT_MAX);
}

/* What was overwritten by a shorter list is of no meaning. */
static void
normalize(struct ca_config *config)
{
	for (unsigned i = config->roundup.count; i < CA_INTERVALS_MAX; i++)
		memset(&config->roundup.interval[i], 0, sizeof(config->roundup.interval[i]));
}

static void
check_printed(const struct ca_config *config)
{
	static struct environment printed;
	struct ca_config again;

	memset(&printed, 0, sizeof(printed));
	ca_config_confirm(config, collect, &printed);
	if (printed.escaped)
		return;
	split(&printed);
	if (printed.conf[0]) {
		printed.name[printed.n] = "CONF";
		printed.value[printed.n++] = printed.conf;
	}
	require(!ca_config_load(&again, get, &printed, NULL, report, &printed));
	normalize(&again);
	/* NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): cleared as a whole when loaded */
	require(!memcmp(&again, config, sizeof(again)));
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct environment env;
	struct ca_config config;
	int bad;

	memset(&env, 0, sizeof(env));
	memcpy(env.text, data, size < TEXT_MAX - 1 ? size : TEXT_MAX - 1);
	split(&env);
	bad = ca_config_load(&config, get, &env, NULL, report, &env);
	require(env.reported == (bad > CA_CONFIG_REPORT_MAX ? CA_CONFIG_REPORT_MAX + 1 : bad));
	check_valid(&config);
	normalize(&config);
	check_printed(&config);
	return 0;
}
