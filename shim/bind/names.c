/* SPDX-License-Identifier: MIT */
/*
 * The tables of names: hooks.def as rows, cuda_names.def as a sorted list.
 *
 * cuda_names.def is sorted by symbol in byte order (a unit test holds it to that), so a symbol is
 * found by bisection. The symbols of one base name all begin with it and so stand close together
 * behind the first symbol that is not smaller; names with a longer base may stand between them.
 */
#include "shim/bind/early.h"
#include "shim/bind/loader.h"

#include "shim/bind/hooks.h"

#define IS_PER_THREAD_LEGACY false
#define IS_PER_THREAD_PTSZ true

const struct ca_row ca_rows[] = {
#define CA_HOOK(symbol, base, version, flags, params, args)                                        \
	{ #symbol, #base, version, IS_PER_THREAD_##flags, (uintptr_t)symbol },
#define CA_NEED(symbol, base, version, flags, params)                                              \
	{ #symbol, #base, version, IS_PER_THREAD_##flags, 0 },
#include "shim/bind/hooks.def"
};

struct name {
	const char *symbol;
	const char *base;
	int version;
};

static const struct name names[] = {
#define CA_NAME(symbol, base, version, flavour) { #symbol, #base, version },
#include "shim/bind/cuda_names.def"
#undef CA_NAME
};

enum {
#define CA_NAME(symbol, base, version, flavour) NAME_##symbol,
#include "shim/bind/cuda_names.def"
#undef CA_NAME
	NAME_COUNT
};

/* 1 + its row in hooks.def; 0: none. A row whose name is not in cuda_names.def does not compile. */
static const unsigned short name_rows[NAME_COUNT] = {
#define CA_HOOK(symbol, base, version, flags, params, args) [NAME_##symbol] = CA_ROW_##symbol + 1,
#define CA_NEED(symbol, base, version, flags, params) [NAME_##symbol] = CA_ROW_##symbol + 1,
#include "shim/bind/hooks.def"
};

/* The first name that is not smaller than `symbol`. */
static unsigned
name_bound(const char *symbol)
{
	unsigned low = 0, high = NAME_COUNT;

	while (low < high) {
		unsigned middle = low + (high - low) / 2;

		if (ca_early_compare(names[middle].symbol, symbol) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

const struct ca_row *
ca_row_of(const char *symbol)
{
	unsigned i = name_bound(symbol);

	if (i == NAME_COUNT || !name_rows[i] || !ca_early_equal(names[i].symbol, symbol))
		return NULL;
	return &ca_rows[name_rows[i] - 1];
}

const struct ca_row *
ca_row_of_hook(const char *symbol)
{
	const struct ca_row *row = ca_row_of(symbol);

	return row && row->hook ? row : NULL;
}

bool
ca_name_is_symbol(const char *name)
{
	unsigned i = name_bound(name);

	return i < NAME_COUNT && ca_early_equal(names[i].symbol, name);
}

bool
ca_name_each_symbol(const char *base, bool (*visit)(const char *symbol, void *arg), void *arg)
{
	for (unsigned i = name_bound(base);
	     i < NAME_COUNT && ca_early_starts_with(names[i].symbol, base); i++)
		if (ca_early_equal(names[i].base, base) && visit(names[i].symbol, arg))
			return true;
	return false;
}

static bool
visit_any(const char *symbol, void *arg)
{
	return true;
}

bool
ca_name_is_base(const char *name)
{
	return ca_name_each_symbol(name, visit_any, NULL);
}

int
ca_name_newest_version(void)
{
	int newest = 0;

	for (unsigned i = 0; i < NAME_COUNT; i++)
		if (names[i].version > newest)
			newest = names[i].version;
	return newest;
}
