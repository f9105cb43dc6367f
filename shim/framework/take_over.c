/* SPDX-License-Identifier: MIT */
/*
 * The constructor decides for each framework that was asked for, and puts a copy of `environ` with
 * the changes in its place, in memory that is never freed. It does not call setenv: a shell has its
 * own function of that name, which is not ready yet. An environment replaced so is as good as any
 * to libc, which copies it before it changes it.
 *
 * It is left alone where the library was opened late: other threads may read it then, and calls are
 * not intercepted.
 */
#include "shim/framework/take_over.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#include "config/log.h"
#include "config/parse.h"
#include "config/text.h"
#include "shim/bind/object.h"
#include "shim/bind/scope.h"

#define TORCH_BACKEND "cudaMallocAsync"
#define TORCH_NO_CACHE "PYTORCH_NO_CUDA_MEMORY_CACHING"
enum { VALUE_SHOWN_BYTES = 256 };

static const char *const words[CA_TAKE_OVERS] = { "torch", "jax", "tensorflow", "cudf" };

/* One variable decides; another goes with it where that is unset. */
static const struct {
	const char *variable, *value;
	const char *also, *also_value;
} variables[CA_TAKE_OVERS] = {
	/* without PREALLOCATE, three quarters of the device become one block (jaxlib/xla_client.py)
	 */
	[1] = { "XLA_PYTHON_CLIENT_ALLOCATOR", "cuda_async", "XLA_PYTHON_CLIENT_PREALLOCATE",
		"false" },
	[2] = { "TF_GPU_ALLOCATOR", "cuda_malloc_async", NULL, NULL },
	[3] = { "CUDF_PANDAS_RMM_MODE", "async", NULL, NULL },
};

static unsigned wanted; /* enum ca_take_over, or-ed; written by the constructor */
static struct ca_take_over_result results[CA_TAKE_OVERS]; /* likewise */

/* ---- PyTorch: a key of a list, in one of two variables */

/* Its value is one of two answers: ours, or another; NULL: the list has none. */
static const char *
backend_of(const char *text)
{
	const char *answer = NULL;
	struct ca_conf_entry entry;

	while (text && ca_conf_next(&text, &entry))
		if (!strcmp(entry.key, "backend"))
			answer = strcmp(entry.value, TORCH_BACKEND) ? "" : TORCH_BACKEND;
	return answer;
}

/* Keys that every PyTorch from 2.1 on knows: an unknown one is an exception. */
static bool
has_only_old_keys(const char *text)
{
	static const char known[][32] = { "max_split_size_mb", "garbage_collection_threshold",
					  "roundup_power2_divisions", "expandable_segments" };
	struct ca_conf_entry entry;
	bool found = true;

	while (found && ca_conf_next(&text, &entry)) {
		found = entry.fault == CA_CONF_EMPTY;
		for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
			found = found || !strcmp(entry.key, known[i]);
	}
	return found;
}

/* A comma goes between the list and what is appended, unless nothing, or one, is there. */
static struct ca_take_over_change
append(const char *variable, const char *before)
{
	size_t length = before ? strlen(before) : 0;

	while (length && strchr(" \t\n\v\f\r", before[length - 1]))
		length--;
	return (struct ca_take_over_change){ variable, length ? before : NULL,
					     "backend:" TORCH_BACKEND,
					     length && before[length - 1] != ',' };
}

/*
 * The first of the two variables that is set, even to nothing, is in force; in PyTorch 2.9 it was
 * the other way round, so where both are set both get it. Before 2.9 the newer one is not read:
 * where that alone is set, its list goes into the older one, too, if every version knows the keys.
 */
static unsigned
decide_torch(const char *older, const char *newer, bool no_cache,
	     struct ca_take_over_change *ret_changes, struct ca_take_over_result *ret_result)
{
	const char *old_backend = backend_of(older), *new_backend = backend_of(newer);
	const char *backend = old_backend ? old_backend : new_backend;
	unsigned n = 0;

	ret_result->state = CA_TAKE_OVER_REFUSED;
	ret_result->variable = no_cache                                 ? TORCH_NO_CACHE
			       : older && (old_backend || !new_backend) ? CA_TORCH_CONF
									: CA_TORCH_CONF_NEW;
	if (no_cache)
		return 0;
	if (backend) {
		bool other = (old_backend && !*old_backend) || (new_backend && !*new_backend);

		if (!other)
			ret_result->state = CA_TAKE_OVER_PRESENT;
		else if (*backend)
			ret_result->variable = CA_TORCH_CONF_NEW;
		return 0;
	}
	ret_result->state = CA_TAKE_OVER_SET;
	if (older)
		ret_changes[n++] = append(CA_TORCH_CONF, older);
	else if (!newer || has_only_old_keys(newer))
		ret_changes[n++] = append(CA_TORCH_CONF, newer);
	if (newer)
		ret_changes[n++] = append(CA_TORCH_CONF_NEW, newer);
	ret_result->variable = ret_changes[0].variable;
	return n;
}

/* ---- the others: a word */

static unsigned
decide_word(unsigned place, ca_getenv_fn *env, void *env_arg,
	    struct ca_take_over_change *ret_changes, struct ca_take_over_result *ret_result)
{
	const char *now = env(env_arg, variables[place].variable), *also = NULL;
	bool is_set = now && *now;
	unsigned n = 0;

	ret_result->variable = variables[place].variable;
	ret_result->state = is_set ? CA_TAKE_OVER_PRESENT : CA_TAKE_OVER_SET;
	if (is_set && strcmp(now, variables[place].value) != 0) {
		ret_result->state = CA_TAKE_OVER_REFUSED;
		return 0;
	}
	if (!is_set)
		ret_changes[n++] = (struct ca_take_over_change){ variables[place].variable, NULL,
								 variables[place].value, false };
	if (variables[place].also)
		also = env(env_arg, variables[place].also);
	if (variables[place].also && !(also && *also))
		ret_changes[n++] =
			(struct ca_take_over_change){ variables[place].also, NULL,
						      variables[place].also_value, false };
	return n;
}

unsigned
ca_take_over_decide(unsigned place, ca_getenv_fn *env, void *env_arg,
		    struct ca_take_over_change ret_changes[CA_TAKE_OVER_CHANGES_MAX],
		    struct ca_take_over_result *ret_result)
{
	if (1u << place != CA_TAKE_TORCH)
		return decide_word(place, env, env_arg, ret_changes, ret_result);
	return decide_torch(env(env_arg, CA_TORCH_CONF), env(env_arg, CA_TORCH_CONF_NEW),
			    env(env_arg, TORCH_NO_CACHE), ret_changes, ret_result);
}

/* ---- the environment */

static const char *
get_environment(void *arg, const char *name)
{
	return secure_getenv(name);
}

static bool
is_variable(const char *entry, const char *name)
{
	size_t length = strlen(name);

	return !strncmp(entry, name, length) && entry[length] == '=';
}

static bool
is_changed(const char *entry, const struct ca_take_over_change *changes, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (is_variable(entry, changes[i].variable))
			return true;
	return false;
}

/* "NAME=value", or its length where `size` is 0. */
static size_t
print(char *ret, size_t size, const struct ca_take_over_change *change)
{
	return ca_text_format(ret, size, "%s=%s%s%s", change->variable,
			      change->before ? change->before : "", change->comma ? "," : "",
			      change->added);
}

/* False: no memory. */
static bool
replace_environment(const struct ca_take_over_change *changes, unsigned n)
{
	size_t entries = 0, bytes = 0, kept = 0;
	char **fresh, *text;

	while (environ && environ[entries])
		entries++;
	for (unsigned i = 0; i < n; i++)
		bytes += print(NULL, 0, &changes[i]) + 1;
	bytes += (entries + n + 1) * sizeof(char *);
	fresh = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (fresh == MAP_FAILED)
		return false;
	text = (char *)(fresh + entries + n + 1);
	for (size_t i = 0; i < entries; i++)
		if (!is_changed(environ[i], changes, n))
			fresh[kept++] = environ[i];
	for (unsigned i = 0; i < n; i++) {
		fresh[kept++] = text;
		text += print(text, (size_t)((char *)fresh + bytes - text), &changes[i]) + 1;
	}
	environ = fresh;
	return true;
}

struct order {
	uintptr_t loader;
	bool late;
};

static bool
visit(const struct ca_object *object, void *arg)
{
	struct order *order = arg;

	if (ca_object_holds(object, order->loader))
		order->late = true;
	return order->late || ca_object_holds(object, (uintptr_t)visit);
}

/* The loader lists itself behind libc, and before all that is opened later on. */
bool
ca_take_over_is_late(void)
{
	struct order order = { .loader = getauxval(AT_BASE) };

	ca_object_walk(visit, &order);
	return order.late;
}

/* The constructor's memory of names must not outlive a call to it: results name constants. */
__attribute__((constructor)) static void
take_over(void)
{
	struct ca_take_over_change changes[CA_TAKE_OVERS * CA_TAKE_OVER_CHANGES_MAX];
	static struct ca_config config; /* too large for a stack that may be small */
	const char *text = secure_getenv("CACHEALLOC_TAKEOVER");
	unsigned n = 0;
	CA_KEEP_ERRNO;

	if (!text || !*text || ca_take_over_is_late())
		return;
	ca_config_load(&config, get_environment, NULL, NULL, NULL, NULL);
	if (config.disable != CA_DISABLE_OFF)
		return;
	for (unsigned i = 0; i < CA_TAKE_OVERS; i++)
		if (config.take_over >> i & 1)
			n += ca_take_over_decide(i, get_environment, NULL, &changes[n],
						 &results[i]);
	if (!n || replace_environment(changes, n))
		wanted = config.take_over;
}

/* ---- what was done */

static void
report(unsigned place)
{
	const struct ca_take_over_result *result = &results[place];
	const char *value = secure_getenv(result->variable);
	char shown[VALUE_SHOWN_BYTES];

	ca_text_escape(shown, sizeof(shown), value ? value : "");
	if (result->state == CA_TAKE_OVER_REFUSED)
		ca_warn("CACHEALLOC_TAKEOVER=%s changes nothing: %s=%s is left as it is",
			words[place], result->variable, shown);
	else
		ca_info("CACHEALLOC_TAKEOVER=%s: %s=%s%s", words[place], result->variable, shown,
			result->state == CA_TAKE_OVER_SET ? "" : ", as it was");
}

void
ca_take_over_report(void)
{
	for (unsigned i = 0; i < CA_TAKE_OVERS; i++)
		if (wanted >> i & 1)
			report(i);
}
