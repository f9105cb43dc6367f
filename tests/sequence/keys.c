/* SPDX-License-Identifier: MIT */
#include "tests/sequence/keys.h"

#include <stdio.h>
#include <string.h>

#include "config/options.h"
#include "config/parse.h"
#include "tests/sequence/world.h"

struct generator;
typedef void generate_fn(struct source *source, const struct generator *row, char *ret,
			 size_t size);

/* Numbers in [low, high]; or one of the words of the setting. */
struct generator {
	const char *name;
	generate_fn *generate; /* NULL: not read by the allocator */
	unsigned low, high;
};

static unsigned
between(struct source *source, const struct generator *row)
{
	return row->low + (unsigned)source_pick(source, row->high - row->low + 1);
}

static void
number(struct source *source, const struct generator *row, char *ret, size_t size)
{
	snprintf(ret, size, "%u", between(source, row));
}

static void
number_or_unlimited(struct source *source, const struct generator *row, char *ret, size_t size)
{
	if (source_pick(source, 4))
		number(source, row, ret, size);
	else
		snprintf(ret, size, "unlimited");
}

static void
kib(struct source *source, const struct generator *row, char *ret, size_t size)
{
	snprintf(ret, size, "%uK", between(source, row));
}

static void
hundredths(struct source *source, const struct generator *row, char *ret, size_t size)
{
	snprintf(ret, size, "0.%02u", between(source, row));
}

static void
flag(struct source *source, const struct generator *row, char *ret, size_t size)
{
	snprintf(ret, size, "%s", source_pick(source, 2) ? "True" : "False");
}

static void
choice(struct source *source, const struct generator *row, char *ret, size_t size)
{
	const char *accepted = ca_option_find(true, row->name)->accepted;
	const char *second = ca_parse_enum_words(accepted, ret, size);

	if (source_pick(source, 2))
		snprintf(ret, size, "%s", second);
}

static void
word(struct source *source, const struct generator *row, char *ret, size_t size)
{
	const char *accepted = ca_option_find(true, row->name)->accepted;
	unsigned n = 0;

	while (ca_parse_word_at(accepted, n, ret, size))
		n++;
	require(n > 0, "a setting has no words");
	ca_parse_word_at(accepted, (unsigned)source_pick(source, n), ret, size);
}

static void
roundup(struct source *source, const struct generator *row, char *ret, size_t size)
{
	unsigned a = 1u << source_pick(source, 5), b = 1u << source_pick(source, 5);

	if (source_pick(source, 2))
		snprintf(ret, size, "%u", a);
	else
		snprintf(ret, size, "[%u:%u,>:%u]", 1u << source_pick(source, 6), a, b);
}

static void
disable(struct source *source, const struct generator *row, char *ret, size_t size)
{
	snprintf(ret, size, "%s", source_pick(source, 4) ? "0" : "count");
}

static void
limit(struct source *source, const struct generator *row, char *ret, size_t size)
{
	bool share = source_pick(source, 2);

	snprintf(ret, size, share ? "%u%%" : "%uM",
		 share ? 20 + (unsigned)source_pick(source, 81) : between(source, row));
}

static const struct generator variables[] = {
	{ "STRICT", NULL, 0, 0 },         { "DISABLE", disable, 0, 0 },
	{ "CONF", NULL, 0, 0 },           { "LOG", NULL, 0, 0 },
	{ "LOG_FILE", NULL, 0, 0 },       { "STATS", NULL, 0, 0 },
	{ "STATS_INTERVAL", NULL, 0, 0 }, { "LIMIT", limit, 30, 500 },
	{ "TRACE", NULL, 0, 0 },          { "SNAPSHOT", NULL, 0, 0 },
	{ "SNAPSHOT_ON", NULL, 0, 0 },    { "TAKEOVER", NULL, 0, 0 },
};

/* The two sizes with a rule to the first one always keep it. */
static const struct generator keys[] = {
	{ "large_segment_size_mb", number, 11, 64 },
	{ "max_split_size_mb", number_or_unlimited, 64, 120 },
	{ "max_non_split_rounding_mb", number, 64, 120 },
	{ "reuse_slack_mb", number_or_unlimited, 0, 300 },
	{ "reuse", choice, 0, 0 },
	{ "free_sync", choice, 0, 0 },
	{ "under_framework", word, 0, 0 },
	{ "async", word, 0, 0 },
	{ "pinned", word, 0, 0 },
	{ "pinned_max_mb", number, 1, 100 },
	{ "min_size", kib, 0, 2048 },
	{ "max_size", kib, 4096, 65536 },
	{ "roundup_power2_divisions", roundup, 0, 0 },
	{ "garbage_collection_threshold", hundredths, 1, 99 },
	{ "per_process_memory_fraction", hundredths, 10, 99 },
	{ "max_cached_mb", number_or_unlimited, 0, 300 },
	{ "min_reserve_mb", number, 0, 100 },
	{ "trim_idle_ms", number, 1, 50 },
	{ "trim_every", number, 1, 64 },
	{ "zero", flag, 0, 0 },
	{ "poison", flag, 0, 0 },
	{ "oom_retry_ms", number, 0, 1 },
	{ "oom_fallback", choice, 0, 0 },
	{ "give_back", choice, 0, 0 },
	{ "expandable_segments", flag, 0, 0 },
	{ "expandable_slack_percent", number, 0, 20 },
};

static const struct generator *
generator_of(const struct ca_option *option)
{
	const struct generator *rows = option->is_key ? keys : variables;
	size_t n = option->is_key ? sizeof(keys) / sizeof(keys[0])
				  : sizeof(variables) / sizeof(variables[0]);

	for (size_t i = 0; i < n; i++)
		if (!strcmp(rows[i].name, option->name))
			return &rows[i];
	return NULL;
}

const char *
sequence_keys_missing(void)
{
	for (size_t i = 0; i < ca_options_count; i++)
		if (ca_options[i].status == CA_STATUS_BUILT && !generator_of(&ca_options[i]))
			return ca_options[i].name;
	return NULL;
}

struct texts {
	char *conf;
	char disable[64], limit[64];
};

static const char *
text_of(void *arg, const char *name)
{
	const struct texts *texts = arg;

	if (!strcmp(name, "CACHEALLOC_CONF"))
		return texts->conf;
	if (!strcmp(name, "CACHEALLOC_DISABLE"))
		return texts->disable;
	return strcmp(name, "CACHEALLOC_LIMIT") ? NULL : texts->limit;
}

static void
complain(void *arg, const char *line)
{
	fprintf(stderr, "%s\n", line);
}

void
sequence_keys(struct source *source, unsigned chance, struct ca_config *ret_config,
	      char ret_text[SEQUENCE_CONF_BYTES])
{
	struct texts texts = { .conf = ret_text };
	size_t length = 0;

	ret_text[0] = '\0';
	for (size_t i = 0; i < ca_options_count; i++) {
		const struct ca_option *option = &ca_options[i];
		const struct generator *row = generator_of(option);
		char value[64];

		if (option->status != CA_STATUS_BUILT || !row || !row->generate ||
		    source_pick(source, 16) >= chance)
			continue;
		row->generate(source, row, value, sizeof(value));
		if (option->is_key)
			length +=
				(size_t)snprintf(ret_text + length, SEQUENCE_CONF_BYTES - length,
						 "%s%s:%s", length ? "," : "", option->name, value);
		else
			snprintf(row->generate == limit ? texts.limit : texts.disable,
				 sizeof(texts.limit), "%s", value);
	}
	require(length < SEQUENCE_CONF_BYTES, "a configuration too long for its place");
	require(!ca_config_load(ret_config, text_of, &texts, NULL, complain, NULL),
		"a random configuration is refused");
}
