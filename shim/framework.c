/* SPDX-License-Identifier: MIT */
/*
 * The table holds where the libraries of frameworks whose cache is on lie, and the shared runtimes.
 * It is published under a version that is odd meanwhile: who reads and sees the version change, or
 * odd, reads the list of libraries for itself; who publishes and finds another at it leaves it, and
 * the next call tries again. So nobody waits.
 */
#include "shim/framework.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "config/log.h"
#include "shim/object.h"

#define MIB ((uint64_t)1 << 20)

enum {
	RANGES_MAX = 32,
	FRAMES_MAX = 16, /* of a runtime, between its cudaMalloc and the driver */
};

enum framework {
#define CA_FRAMEWORK(id, name, take_over) FRAMEWORK_##id,
#define CA_FRAMEWORK_FILE(id, pattern)
#define CA_FRAMEWORK_OFF(id, variable, value)
#include "shim/frameworks.def"
#undef CA_FRAMEWORK
#undef CA_FRAMEWORK_FILE
#undef CA_FRAMEWORK_OFF
	FRAMEWORKS,
	RUNTIME = FRAMEWORKS,
	NOBODY,
};

static const struct {
	const char *name, *take_over;
} frameworks[] = {
#define CA_FRAMEWORK(id, name, take_over) { name, take_over },
#define CA_FRAMEWORK_FILE(id, pattern)
#define CA_FRAMEWORK_OFF(id, variable, value)
#include "shim/frameworks.def"
#undef CA_FRAMEWORK
#undef CA_FRAMEWORK_FILE
#undef CA_FRAMEWORK_OFF
};

static const struct {
	enum framework framework;
	const char *pattern;
} files[] = {
#define CA_FRAMEWORK(id, name, take_over)
#define CA_FRAMEWORK_FILE(id, pattern) { FRAMEWORK_##id, pattern },
#define CA_FRAMEWORK_OFF(id, variable, value)
#include "shim/frameworks.def"
#undef CA_FRAMEWORK
#undef CA_FRAMEWORK_FILE
#undef CA_FRAMEWORK_OFF
};

static const struct {
	enum framework framework;
	const char *variable, *value;
} switches[] = {
#define CA_FRAMEWORK(id, name, take_over)
#define CA_FRAMEWORK_FILE(id, pattern)
#define CA_FRAMEWORK_OFF(id, variable, value) { FRAMEWORK_##id, variable, value },
#include "shim/frameworks.def"
#undef CA_FRAMEWORK
#undef CA_FRAMEWORK_FILE
#undef CA_FRAMEWORK_OFF
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

struct range {
	_Atomic uintptr_t low, high; /* [low, high) */
	_Atomic unsigned owner;      /* enum framework */
};

struct table {
	_Atomic uint64_t generation; /* of the loaded objects */
	_Atomic uint64_t lookups;    /* covered; 0: nothing was read yet */
	_Atomic unsigned on;         /* a bit a framework that is there and caches */
	_Atomic unsigned n_ranges;
	struct range ranges[RANGES_MAX];
};

/* A reader's loads stay before its last look at the version, a writer's stores behind the odd one. */
#define GET(field) atomic_load_explicit(&(field), memory_order_acquire)
#define SET(field, value) atomic_store_explicit(&(field), value, memory_order_release)

_Atomic uint64_t ca_framework_quiet_at;
static _Atomic uint64_t version; /* odd: being written */
static struct table published;
static _Atomic unsigned told; /* two bits a framework: that it passes, that its cache is off */

/* ---- reading the list of libraries ---- */

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

static enum framework
owner_of(const struct ca_object *object)
{
	for (size_t i = 0; i < COUNT(files); i++)
		if (matches(object, files[i].pattern))
			return files[i].framework;
	/* older wheels of PyTorch bring a libcudart-<hash>.so of their own */
	if (matches(object, "libcudart.so") || matches(object, "libcudart-"))
		return RUNTIME;
	return NOBODY;
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

/* The variable that says so, or NULL. */
static const char *
switched_off(enum framework framework)
{
	for (size_t i = 0; i < COUNT(switches); i++) {
		const char *value;

		if (switches[i].framework != framework)
			continue;
		value = secure_getenv(switches[i].variable);
		if (!value)
			continue;
		if (strchr(switches[i].value, ':')
			    ? contains_dropping_space(value, switches[i].value)
			    : !strcmp(value, switches[i].value))
			return switches[i].variable;
	}
	return NULL;
}

struct reading {
	struct table *table;
	unsigned off; /* a bit a framework whose requests are not looked for */
	unsigned seen;
};

static bool
visit(const struct ca_object *object, void *arg)
{
	struct reading *reading = arg;
	unsigned n = GET(reading->table->n_ranges);
	enum framework owner = owner_of(object);
	uintptr_t low = UINTPTR_MAX, high = 0;

	if (owner == NOBODY)
		return false;
	reading->seen |= 1u << owner;
	if (reading->off >> owner & 1 || n == RANGES_MAX)
		return false;
	for (unsigned i = 0; i < object->phdr_count; i++) {
		const ElfW(Phdr) *p = &object->phdr[i];
		uintptr_t begin = object->base + p->p_vaddr;

		if (p->p_type != PT_LOAD)
			continue;
		low = begin < low ? begin : low;
		high = begin + p->p_memsz > high ? begin + p->p_memsz : high;
	}
	SET(reading->table->ranges[n].low, low);
	SET(reading->table->ranges[n].high, high);
	SET(reading->table->ranges[n].owner, owner);
	SET(reading->table->n_ranges, n + 1);
	return false;
}

static bool
first_time(unsigned bit)
{
	return !(atomic_fetch_or(&told, 1u << bit) >> bit & 1);
}

static void
tell_off(unsigned seen)
{
	for (unsigned i = 0; i < FRAMEWORKS; i++) {
		const char *variable = seen >> i & 1 ? switched_off(i) : NULL;

		if (variable && first_time(2 * i + 1))
			ca_info("%s's own cache is off (%s): what it asks of cudaMalloc is cached here",
				frameworks[i].name, variable);
	}
}

/* Into *table, which is the caller's own. */
static void
read_libraries(const struct ca_config *config, uint64_t generation, uint64_t lookups,
	       struct table *table)
{
	struct reading reading = { .table = table };

	memset(table, 0, sizeof(*table));
	for (unsigned i = 0; config->under_framework == CA_UNDER_AUTO && i < FRAMEWORKS; i++)
		reading.off |= switched_off(i) ? 1u << i : 0;
	ca_object_walk(visit, &reading);
	SET(table->generation, generation);
	SET(table->lookups, lookups);
	SET(table->on, reading.seen & ~reading.off & ((1u << FRAMEWORKS) - 1));
	if (reading.off & reading.seen)
		tell_off(reading.off & reading.seen);
}

/* ---- publishing ---- */

static bool
write_begin(uint64_t *ret_version)
{
	*ret_version = atomic_load(&version);
	return !(*ret_version & 1) &&
	       atomic_compare_exchange_strong(&version, ret_version, *ret_version + 1);
}

static void
write_end(uint64_t begun)
{
	atomic_store_explicit(&version, begun + 2, memory_order_release);
}

static void
publish(const struct table *table)
{
	uint64_t begun;

	if (!write_begin(&begun))
		return;
	/* one that read before us, but comes after us, is not newer */
	if (GET(table->lookups) >= GET(published.lookups)) {
		for (unsigned i = 0; i < GET(table->n_ranges); i++) {
			SET(published.ranges[i].low, GET(table->ranges[i].low));
			SET(published.ranges[i].high, GET(table->ranges[i].high));
			SET(published.ranges[i].owner, GET(table->ranges[i].owner));
		}
		SET(published.n_ranges, GET(table->n_ranges));
		SET(published.on, GET(table->on));
		SET(published.generation, GET(table->generation));
		SET(published.lookups, GET(table->lookups));
	}
	write_end(begun);
}

/* Nothing was loaded or unloaded: what is published holds for these look-ups too. */
static void
prolong(uint64_t generation, uint64_t lookups)
{
	uint64_t begun;

	if (!write_begin(&begun))
		return;
	if (GET(published.generation) == generation && lookups > GET(published.lookups))
		SET(published.lookups, lookups);
	write_end(begun);
}

/* ---- whose call it is ---- */

static enum framework
holder(const struct table *table, uintptr_t pc)
{
	unsigned n = GET(table->n_ranges);

	for (unsigned i = 0; i < n && i < RANGES_MAX; i++)
		if (pc - 1 - GET(table->ranges[i].low) <
		    GET(table->ranges[i].high) - GET(table->ranges[i].low))
			return GET(table->ranges[i].owner);
	return NOBODY;
}

/* The walk did not get out of the runtime. A framework without a pattern gets the benefit. */
static bool
could_be_segment(unsigned on, uint64_t bytes)
{
	if (on & ~(1u << FRAMEWORK_PYTORCH))
		return true;
	return bytes == 2 * MIB || (bytes >= 10 * MIB && bytes % (2 * MIB) == 0);
}

/* A framework's number, or NOBODY. */
static enum framework
asker(const struct table *table, uint64_t bytes, const struct ca_frame *caller)
{
	struct ca_frame frame = *caller;
	enum framework owner = holder(table, frame.pc);

	for (unsigned i = 0; owner == RUNTIME; i++) {
		if (i == FRAMES_MAX || !ca_frame_up(&frame, GET(table->generation)))
			return could_be_segment(GET(table->on), bytes) ? RUNTIME : NOBODY;
		owner = holder(table, frame.pc);
	}
	return owner;
}

static void
tell_on(enum framework owner)
{
	if (owner == RUNTIME || GET(told) >> (2 * owner) & 1 || !first_time(2 * owner))
		return;
	ca_info("%s's own cache is on: its segments go straight through; to let cachealloc take "
		"over, %s",
		frameworks[owner].name, frameworks[owner].take_over);
}

/* By what is published, if that is not changed meanwhile. */
static bool
ask_published(uint64_t lookups, uint64_t bytes, const struct ca_frame *caller,
	      enum framework *ret_owner, unsigned *ret_on)
{
	uint64_t begun = atomic_load_explicit(&version, memory_order_acquire);

	if (begun & 1 || GET(published.lookups) != lookups)
		return false;
	*ret_on = GET(published.on);
	*ret_owner = *ret_on ? asker(&published, bytes, caller) : NOBODY;
	return GET(version) == begun;
}

static __attribute__((noinline, cold)) void
ask_libraries(struct ca_process *process, uint64_t lookups, uint64_t bytes,
	      const struct ca_frame *caller, enum framework *ret_owner, unsigned *ret_on)
{
	uint64_t generation = ca_object_generation();
	struct table table;

	if (GET(published.lookups) && GET(published.generation) == generation) {
		prolong(generation, lookups);
		if (ask_published(lookups, bytes, caller, ret_owner, ret_on))
			return;
	}
	read_libraries(&process->config, generation, lookups, &table);
	publish(&table);
	*ret_on = GET(table.on);
	*ret_owner = *ret_on ? asker(&table, bytes, caller) : NOBODY;
	if (*ret_on)
		ca_heap_share(process->heap);
}

bool
ca_framework_passes(struct ca_process *process, uint64_t bytes, const struct ca_frame *caller)
{
	const struct ca_config *config = &process->config;
	bool window = config->min_size_bytes || config->max_size_bytes != UINT64_MAX;
	uint64_t lookups = atomic_load_explicit(&ca_loader_lookups, memory_order_acquire);
	enum framework owner = NOBODY;
	unsigned on = 0;
	int saved = errno;

	if (!process->serves)
		return false;
	if (bytes < config->min_size_bytes || bytes > config->max_size_bytes)
		return true;
	if (config->under_framework != CA_UNDER_CACHE &&
	    !ask_published(lookups, bytes, caller, &owner, &on))
		ask_libraries(process, lookups, bytes, caller, &owner, &on);
	if (!on && !window)
		SET(ca_framework_quiet_at, lookups);
	if (owner != NOBODY)
		tell_on(owner);
	errno = saved;
	return owner != NOBODY;
}

void
ca_framework_look_again(void)
{
	atomic_fetch_add_explicit(&ca_loader_lookups, 1, memory_order_release);
}

/* The environment and the settings are the child's own from here on. */
void
ca_framework_after_fork_child(void)
{
	atomic_store(&version, 0);
	memset(&published, 0, sizeof(published));
	SET(ca_framework_quiet_at, 0);
	SET(told, 0);
}
