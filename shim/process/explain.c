/* SPDX-License-Identifier: MIT */
#include "shim/process/explain.h"

#include <stddef.h>

#include "config/text.h"
#include "shim/framework/framework.h"

static const char by_cache[] = "CACHEALLOC_CONF=under_framework:cache";

static void
note_text(char ret[CA_EMIT_NOTE], const char *text)
{
	ca_text_format(ret, CA_EMIT_NOTE, "%s", text);
}

/* By the settings min_size and max_size, by a framework, or by both. */
static void
explain_passed(const struct ca_config *config, struct ca_emit_note *note)
{
	bool window = config->min_size_bytes || config->max_size_bytes != UINT64_MAX;
	char off[CA_EMIT_NOTE];
	const char *name = ca_framework_that_passed(off, sizeof(off));

	if (window && !name) {
		note_text(note->why, "by size");
		note_text(note->change[0],
			  "to cache them here: CACHEALLOC_CONF=min_size:0,max_size:unlimited");
		return;
	}
	if (config->under_framework == CA_UNDER_PASS)
		note_text(note->why, "by under_framework:pass");
	else
		ca_text_format(note->why, sizeof(note->why), "%s own cache is on%s",
			       name ? name : "a framework's", window ? ", or by size" : "");
	if (off[0] && config->under_framework != CA_UNDER_PASS) {
		ca_text_format(note->change[0], sizeof(note->change[0]),
			       "to cache them here: %s, or", off);
		note_text(note->change[1], by_cache);
	} else {
		ca_text_format(note->change[0], sizeof(note->change[0]), "to cache them here: %s",
			       by_cache);
	}
}

static void
explain_finished(const struct ca_config *config, struct ca_emit_note *note)
{
	if (config->reuse_finished) {
		note_text(note->why, "reuse:finished");
		note_text(note->change[0], "CACHEALLOC_CONF=reuse:ordered changes it");
	} else if (config->zero || config->poison) {
		note_text(note->why, config->zero ? "zero" : "poison");
		ca_text_format(note->change[0], sizeof(note->change[0]),
			       "CACHEALLOC_CONF=%s:False changes it", note->why);
	}
}

void
ca_explain(const struct ca_config *config, struct ca_emit_process *process)
{
	if (config->disable != CA_DISABLE_OFF)
		return;
	explain_passed(config, &process->passed);
	explain_finished(config, &process->finished);
}
