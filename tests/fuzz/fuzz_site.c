/* SPDX-License-Identifier: MIT */
/*
 * A site's file. Whatever its bytes: as many lines are reported as are returned, each printable and
 * with its place in the file; the text is as it was; the configuration is a valid one, also below
 * an environment that sets sizes; and nothing in it ends a program or takes a framework over.
 */
#include <stdio.h>
#include <stdlib.h>

#include "config/site.h"
#include "tests/fuzz/valid.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char path[] = "/etc/a.conf";
static const char environment[] = "max_split_size_mb:32,min_size:2M";

static void
report(void *arg, const char *line)
{
	int *reported = arg;

	++*reported;
	require(!strncmp(line, path, sizeof(path) - 1) || !strncmp(line, "CACHEALLOC_*: ", 14));
	for (; *line; line++)
		require((unsigned char)*line >= ' ' && *line != 0x7f);
}

/* The site's values yield, which is a line and no fault of the environment's. */
static void
report_over(void *arg, const char *line)
{
	require(!strncmp(line, "CACHEALLOC_CONF: the site's sizes", 33));
	require(++*(int *)arg <= 2);
}

static const char *
get(void *arg, const char *name)
{
	return strcmp(name, "CACHEALLOC_CONF") != 0 ? NULL : environment;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct ca_site site;
	struct ca_config config;
	int reported = 0, dropped = 0, bad;
	char *text = calloc(1, size + 1);

	require(text);
	memcpy(text, data, size);
	text[size] = 'x';
	bad = ca_site_parse(&site, path, text, size, report, &reported);
	require(reported == (bad > CA_CONFIG_REPORT_MAX ? CA_CONFIG_REPORT_MAX + 1 : bad));
	require(!memcmp(text, data, size) && text[size] == 'x');
	check_valid(&site.config);
	require(!site.config.strict && !site.config.take_over);
	require(!ca_config_load_over(&site, &config, get, NULL, NULL, report_over, &dropped));
	check_valid(&config);
	require(config.max_split_size_bytes == (uint64_t)32 << 20);
	require(config.min_size_bytes == (uint64_t)2 << 20);
	free(text);
	return 0;
}
