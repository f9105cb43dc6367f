/* SPDX-License-Identifier: MIT */
/*
 * One table of knobs: name, parser, and the sentence that says what is accepted. A parser sees the
 * value only; simb_knobs_parse() makes the error line from the table, so that all of them read
 * alike:
 *
 *   simcuda: SIMCUDA_CLOCK=fast: expected real or manual
 *
 * Lists (SIMCUDA_FAIL, SIMCUDA_LATENCY) are cut into items by hand, since the environment must not
 * be written to.
 */
#include "tests/sim/knobs.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ITEM_MAX = 256 };

/* Decimal digits only, the whole text, at most `max`. */
static bool
number_parse(const char *text, uint64_t max, uint64_t *ret)
{
	uint64_t value = 0;

	if (!*text)
		return false;
	for (; *text; text++) {
		unsigned digit = (unsigned)(*text - '0');

		if (digit > 9 || value > (max - digit) / 10)
			return false;
		value = value * 10 + digit;
	}
	*ret = value;
	return true;
}

/* Digits followed by one of the units; *ret = number * the unit's factor. */
static bool
scaled_parse(const char *text, const char *const *units, const uint64_t *factors, uint64_t *ret)
{
	char digits[24];
	size_t n = strspn(text, "0123456789");
	uint64_t value;

	if (n >= sizeof(digits))
		return false;
	memcpy(digits, text, n);
	digits[n] = '\0';
	for (size_t i = 0; units[i]; i++) {
		if (strcmp(text + n, units[i]) != 0)
			continue;
		if (!number_parse(digits, UINT64_MAX / factors[i], &value))
			return false;
		*ret = value * factors[i];
		return true;
	}
	return false;
}

bool
simb_bytes_parse(const char *text, uint64_t *ret_bytes)
{
	static const char *const units[] = { "", "K", "M", "G", NULL };
	static const uint64_t factors[] = { 1, 1ULL << 10, 1ULL << 20, 1ULL << 30 };

	return scaled_parse(text, units, factors, ret_bytes);
}

bool
simb_time_parse(const char *text, uint64_t *ret_ns)
{
	static const char *const units[] = { "ns", "us", "ms", "s", NULL };
	static const uint64_t factors[] = { 1, 1000, 1000000, 1000000000 };

	return scaled_parse(text, units, factors, ret_ns);
}

int
simb_path_expand(const char *pattern, int pid, char *out, size_t n_out)
{
	size_t at = 0;

	for (const char *p = pattern; *p; p++) {
		int n;

		if (*p == '%' && p[1] != 'p' && p[1] != '%')
			return -EINVAL;
		if (*p == '%' && *++p == 'p')
			n = snprintf(out + at, n_out - at, "%d", pid);
		else
			n = snprintf(out + at, n_out - at, "%c", *p);
		at += (size_t)n;
		if (at >= n_out)
			return -ENAMETOOLONG;
	}
	return 0;
}

static bool
devices_parse(struct simb_knobs *knobs, const char *value)
{
	uint64_t n;

	if (!number_parse(value, SIM_DEVICES_MAX, &n))
		return false;
	knobs->n_devices = (int)n;
	return true;
}

static bool
mem_parse(struct simb_knobs *knobs, const char *value)
{
	return simb_bytes_parse(value, &knobs->mem_bytes) && knobs->mem_bytes >= 2 << 20;
}

static bool
version_parse(struct simb_knobs *knobs, const char *value)
{
	uint64_t version;

	if (!number_parse(value, 13050, &version) || version < 11000 || version % 10 ||
	    version % 1000 > 90)
		return false;
	knobs->driver_version = (int)version;
	return true;
}

static bool
clock_parse(struct simb_knobs *knobs, const char *value)
{
	const size_t n_manual = strlen("manual");
	uint64_t asked_max = 0;

	knobs->clock = strncmp(value, "manual", n_manual) != 0 ? SIM_CLOCK_REAL : SIM_CLOCK_MANUAL;
	if (knobs->clock == SIM_CLOCK_REAL)
		return !strcmp(value, "real");
	if (value[n_manual] &&
	    (value[n_manual] != ':' || !number_parse(value + n_manual + 1, 1000000, &asked_max) ||
	     !asked_max))
		return false;
	knobs->asked_max = (unsigned)asked_max;
	return true;
}

static bool
races_parse(struct simb_knobs *knobs, const char *value)
{
	static const char *const words[] = {
		[SIM_RACES_OFF] = "off", [SIM_RACES_REPORT] = "report", [SIM_RACES_ABORT] = "abort"
	};

	for (int i = SIM_RACES_OFF; i <= SIM_RACES_ABORT; i++) {
		if (!strcmp(value, words[i])) {
			knobs->races = (enum sim_races)i;
			return true;
		}
	}
	return false;
}

static bool
strict_parse(struct simb_knobs *knobs, const char *value)
{
	knobs->strict = !strcmp(value, "1");
	return knobs->strict || !strcmp(value, "0");
}

static bool
deadlock_parse(struct simb_knobs *knobs, const char *value)
{
	uint64_t ms;

	knobs->deadlock_ms = 0;
	if (!strcmp(value, "off") || !strcmp(value, "0"))
		return true;
	if (!strcmp(value, "on"))
		ms = 10000;
	else if (!number_parse(value, 86400000, &ms))
		return false;
	knobs->deadlock_ms = (unsigned)ms;
	return true;
}

/* "50" or "50:1234": microseconds, seed */
static bool
jitter_parse(struct simb_knobs *knobs, const char *value)
{
	size_t n_us = strcspn(value, ":");
	char us[16] = "";
	uint64_t n;

	if (n_us >= sizeof(us))
		return false;
	memcpy(us, value, n_us);
	if (!number_parse(us, 1000000, &n))
		return false;
	knobs->jitter_us = (unsigned)n;
	knobs->jitter_seeded = value[n_us];
	return !value[n_us] || number_parse(value + n_us + 1, UINT64_MAX, &knobs->jitter_seed);
}

static bool
private_parse(struct simb_knobs *knobs, const char *value)
{
	knobs->every_table = !strcmp(value, "any");
	knobs->private_table = knobs->every_table || !strcmp(value, "1");
	return knobs->private_table || !strcmp(value, "0");
}

static bool
vmm_parse(struct simb_knobs *knobs, const char *value)
{
	knobs->no_vmm = !strcmp(value, "0");
	knobs->rdma = !strcmp(value, "rdma");
	return knobs->no_vmm || knobs->rdma || !strcmp(value, "1");
}

static bool
future_parse(struct simb_knobs *knobs, const char *value)
{
	knobs->future = !strcmp(value, "1");
	return knobs->future || !strcmp(value, "0");
}

static bool
ipc_parse(struct simb_knobs *knobs, const char *value)
{
	snprintf(knobs->ipc, sizeof(knobs->ipc), "%s", value);
	return !strcmp(value, "self") ||
	       (strlen(value) < SIMB_PATH_MAX && !access(value, W_OK | X_OK));
}

static bool
ends_parse(struct simb_knobs *knobs, const char *value)
{
	knobs->ends_tell = !strcmp(value, "told");
	return knobs->ends_tell || !strcmp(value, "quiet");
}

static bool
free_parse(struct simb_knobs *knobs, const char *value)
{
	knobs->free_at_once = !strcmp(value, "at_once");
	return knobs->free_at_once || !strcmp(value, "waits");
}

static bool
queues_parse(struct simb_knobs *knobs, const char *value)
{
	knobs->one_queue = !strcmp(value, "1");
	return knobs->one_queue || !strcmp(value, "many");
}

static bool
log_parse(struct simb_knobs *knobs, const char *value)
{
	char path[SIMB_PATH_MAX];

	if (!strcmp(value, "0"))
		return true;
	if (!strcmp(value, "1") || !strcmp(value, "stderr")) {
		knobs->log_fd = STDERR_FILENO;
		return true;
	}
	if (!*value || simb_path_expand(value, (int)getpid(), path, sizeof(path)))
		return false;
	knobs->log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	return knobs->log_fd >= 0;
}

static bool
stats_parse(struct simb_knobs *knobs, const char *value)
{
	char path[SIMB_PATH_MAX];

	if (!*value || simb_path_expand(value, (int)getpid(), path, sizeof(path)))
		return false;
	snprintf(knobs->stats_path, sizeof(knobs->stats_path), "%s", value);
	return true;
}

/* "name:3+:2" */
static bool
fail_item_parse(struct simb_knobs *knobs, char *item)
{
	struct simb_fail *fail = &knobs->fails[knobs->n_fails];
	char *nth = strchr(item, ':'), *code = nth ? strchr(nth + 1, ':') : NULL;
	uint64_t value;

	if (!code || knobs->n_fails == SIMB_FAILS_MAX)
		return false;
	*nth++ = '\0';
	*code++ = '\0';
	fail->name = strcmp(item, "*") != 0 ? simb_name_find(item) : -1;
	if (fail->name < -1)
		return false;
	fail->onwards = *nth && nth[strlen(nth) - 1] == '+';
	if (fail->onwards)
		nth[strlen(nth) - 1] = '\0';
	if (!number_parse(nth, UINT64_MAX, &fail->nth) || !fail->nth)
		return false;
	if (!number_parse(code, 9999, &value) || !value)
		return false;
	fail->code = (int)value;
	knobs->n_fails++;
	return true;
}

/* "name:100us" */
static bool
latency_item_parse(struct simb_knobs *knobs, char *item)
{
	char *time = strchr(item, ':');
	int name;

	if (!time)
		return false;
	*time++ = '\0';
	name = simb_name_find(item);
	return name >= 0 && simb_time_parse(time, &knobs->latency[name].fixed_ns);
}

/* Hands each item of a comma-separated list to `parse`, as a copy that it may write to. */
static bool
list_parse(struct simb_knobs *knobs, const char *value,
	   bool (*parse)(struct simb_knobs *knobs, char *item))
{
	for (;;) {
		size_t n = strcspn(value, ",");
		char item[ITEM_MAX];

		if (!n || n >= sizeof(item))
			return false;
		memcpy(item, value, n);
		item[n] = '\0';
		if (!parse(knobs, item))
			return false;
		if (!value[n])
			return true;
		value += n + 1;
	}
}

static bool
fail_parse(struct simb_knobs *knobs, const char *value)
{
	return list_parse(knobs, value, fail_item_parse);
}

static bool
latency_parse(struct simb_knobs *knobs, const char *value)
{
	if (!strcmp(value, "none"))
		return true;
	if (!strcmp(value, "published")) {
		knobs->latency_source = "published";
		knobs->latency_whole = true;
#define SIM_LATENCY(symbol, fixed, per_mib, source)                                                \
	knobs->latency[SIMB_NAME_##symbol] = (struct simb_latency){ fixed, per_mib };
#include "tests/sim/latency_published.def"
#undef SIM_LATENCY
		return true;
	}
	knobs->latency_source = "custom";
	return list_parse(knobs, value, latency_item_parse);
}

static bool
breaks_item_parse(struct simb_knobs *knobs, char *item)
{
	if (!strcmp(item, "legacy_record_early"))
		knobs->breaks |= SIM_BREAKS_LEGACY_RECORD;
	else if (!strcmp(item, "context_record_early"))
		knobs->breaks |= SIM_BREAKS_CONTEXT_RECORD;
	else
		return false;
	return true;
}

static bool
beliefs_parse(struct simb_knobs *knobs, const char *value)
{
	return !strcmp(value, "kept") || list_parse(knobs, value, breaks_item_parse);
}

static const struct {
	const char *name;
	bool (*parse)(struct simb_knobs *knobs, const char *value);
	const char *expected;
} table[] = {
	{ "SIMCUDA_DEVICES", devices_parse, "a number of devices, 0 to 16" },
	{ "SIMCUDA_MEM", mem_parse, "bytes per device, 2M or more, as 64M or 16G" },
	{ "SIMCUDA_DRIVER_VERSION", version_parse,
	  "a CUDA version from 11000 to 13050, as 12040 for CUDA 12.4" },
	{ "SIMCUDA_FAIL", fail_parse,
	  "name:nth[+]:code, comma-separated; name is an exported symbol or *, nth counts from 1, "
	  "code is a number above 0" },
	{ "SIMCUDA_LATENCY", latency_parse,
	  "published, none, or name:time, comma-separated, as cuMemAlloc_v2:100us (the preset h200 "
	  "does not exist: nothing was measured there)" },
	{ "SIMCUDA_CLOCK", clock_parse, "real, manual, or manual:N, N from 1 to 1000000" },
	{ "SIMCUDA_RACES", races_parse, "off, report or abort" },
	{ "SIMCUDA_STRICT", strict_parse, "0 or 1" },
	{ "SIMCUDA_DEADLOCK", deadlock_parse, "off, on, or a number of milliseconds" },
	{ "SIMCUDA_JITTER", jitter_parse, "microseconds, at most 1000000, or microseconds:seed" },
	{ "SIMCUDA_PRIVATE_TABLE", private_parse, "0, 1 or any" },
	{ "SIMCUDA_FUTURE", future_parse, "0 or 1" },
	{ "SIMCUDA_VMM", vmm_parse, "0 or 1" },
	{ "SIMCUDA_IPC", ipc_parse, "self, or a folder to write to" },
	{ "SIMCUDA_FREE", free_parse, "waits or at_once" },
	{ "SIMCUDA_ENDS", ends_parse, "quiet or told" },
	{ "SIMCUDA_BELIEFS", beliefs_parse,
	  "kept, or legacy_record_early and context_record_early, comma-separated" },
	{ "SIMCUDA_QUEUES", queues_parse, "many or 1" },
	{ "SIMCUDA_LOG", log_parse, "0, 1, stderr, or a file that can be opened (%p: process id)" },
	{ "SIMCUDA_STATS", stats_parse, "a file name (%p: process id)" },
};

enum { N_TABLE = sizeof(table) / sizeof(table[0]) };

int
simb_knobs_parse(struct simb_knobs *knobs, char *(*get)(const char *name), char *error,
		 size_t n_error)
{
	memset(knobs, 0, sizeof(*knobs));
	knobs->n_devices = 1;
	knobs->mem_bytes = 16ULL << 30;
	knobs->driver_version = 13000;
	knobs->log_fd = -1;
	knobs->latency_source = "none";
	for (int i = 0; i < N_TABLE; i++) {
		const char *value = get(table[i].name);

		if (!value || table[i].parse(knobs, value))
			continue;
		snprintf(error, n_error, "simcuda: %s=%s: expected %s", table[i].name, value,
			 table[i].expected);
		return -EINVAL;
	}
	return 0;
}

const char *
simb_knobs_unknown(char *const *environment)
{
	for (; environment && *environment; environment++) {
		size_t n = strcspn(*environment, "=");
		bool known = false;

		if (strncmp(*environment, "SIMCUDA_", 8) != 0)
			continue;
		for (int i = 0; i < N_TABLE; i++)
			known |= strlen(table[i].name) == n &&
				 !strncmp(*environment, table[i].name, n);
		if (!known)
			return *environment;
	}
	return NULL;
}
