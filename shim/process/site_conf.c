/* SPDX-License-Identifier: MIT */
/*
 * The text is read once and parsed twice: where reports go is a setting that it may have. Between
 * the two it lies in pages of its own, which go back to the system when that is done.
 */
#include "shim/process/site_conf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#include "config/parse.h"
#include "config/text.h"
#include "shim/bind/scope.h"

enum { TEXT_BYTES = CA_SITE_BYTES_MAX + 1, LINE_BYTES = 256 };

struct file {
	char *text; /* TEXT_BYTES; NULL: none is in effect */
	size_t length;
	const char *reason; /* why it is ignored; NULL: it is not, or there is none */
};

/* Written by the maker of the process's record only; a child that is forked meanwhile begins
 * anew. */
static struct file file;
static struct ca_site site;
static bool is_read, is_parsed;

static void
file_close(struct file *one)
{
	if (one->text)
		munmap(one->text, TEXT_BYTES);
	one->text = NULL;
}

static void
file_open(struct file *ret)
{
	void *pages;

	*ret = (struct file){ 0 };
	pages = mmap(NULL, TEXT_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (pages == MAP_FAILED) {
		ret->reason = "there is no memory for it";
		return;
	}
	ret->text = pages;
	if (ca_site_read(ca_site_path, ret->text, CA_SITE_BYTES_MAX, &ret->length, &ret->reason))
		file_close(ret);
}

/* Then a fault that stays is not the file's. */
static bool
is_disabled(void)
{
	const char *text = secure_getenv("CACHEALLOC_DISABLE");
	enum ca_disable disable;

	return text && ca_parse_disable(text, &disable) && disable == CA_DISABLE_ALL;
}

static void
report_reason(const struct file *one, ca_report_fn *report, void *report_arg)
{
	char path[CA_SITE_PATH_MAX], line[CA_SITE_PATH_MAX + LINE_BYTES];

	ca_text_format(line, sizeof(line), "%s is ignored: %s",
		       ca_text_escape(path, sizeof(path), ca_site_path), one->reason);
	report(report_arg, line);
}

void
ca_site_conf_read(void)
{
	CA_KEEP_ERRNO;

	if (is_read || !ca_site_path[0] || getauxval(AT_SECURE) || is_disabled())
		return;
	file_open(&file);
	is_parsed = file.text != NULL;
	if (is_parsed)
		ca_site_parse(&site, ca_site_path, file.text, file.length, NULL, NULL);
}

void
ca_site_conf_report(ca_report_fn *report, void *report_arg)
{
	struct ca_site again;
	CA_KEEP_ERRNO;

	if (is_read)
		return;
	if (file.reason)
		report_reason(&file, report, report_arg);
	if (file.text)
		ca_site_parse(&again, ca_site_path, file.text, file.length, report, report_arg);
	file_close(&file);
	is_read = true;
}

const struct ca_site *
ca_site_conf(void)
{
	return is_parsed ? &site : NULL;
}

const char *
ca_site_conf_path(void)
{
	return is_parsed ? ca_site_path : NULL;
}

void
ca_site_conf_describe(ca_report_fn *report, void *report_arg)
{
	char path[CA_SITE_PATH_MAX], line[CA_SITE_PATH_MAX + LINE_BYTES];
	struct ca_site one;
	struct file now;
	CA_KEEP_ERRNO;

	if (!ca_site_path[0])
		return;
	file_open(&now);
	if (now.reason)
		report_reason(&now, report, report_arg);
	if (!now.text)
		return;
	ca_text_format(line, sizeof(line), "%s is read before the environment",
		       ca_text_escape(path, sizeof(path), ca_site_path));
	report(report_arg, line);
	ca_site_parse(&one, ca_site_path, now.text, now.length, report, report_arg);
	file_close(&now);
}
