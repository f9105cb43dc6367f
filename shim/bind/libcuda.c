/* SPDX-License-Identifier: MIT */
/*
 * The binding to the real driver: its functions, and the routes from its addresses to our entry
 * points.
 *
 * Made at the first hooked call, all at once, in a block of its own, and published by one
 * compare-and-swap. Several threads may build at the same time; one wins, the others give theirs
 * back. No lock is held while the loader or the driver is called. A driver that calls back into a
 * hook while we ask it (as some do while they start) sees what is known so far.
 *
 * The library is one that the program has loaded: a driver among the loaded objects, taken by its
 * soname with RTLD_NOLOAD. That handle is kept for ever, on purpose: hooks stay in the program's
 * hands and need these addresses, so a dlclose by the program must not unmap the driver under them.
 *
 * The driver's symbol table is read before dlsym is asked, since a look-up that fails would change
 * what the program's next dlerror says.
 *
 * Routes are the union of two answers for each row: the exported symbol, which is exact, and what
 * cuGetProcAddress answers for (base name, version, flavour), which need not be the same address.
 * The second is taken only if it is not the exported address of some other name: an old or odd
 * driver may answer with an older ABI.
 */
#include "shim/bind/libcuda.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/mman.h>

#include "shim/bind/loader.h"
#include "shim/bind/object.h"
#include "shim/bind/scope.h"

enum {
	SONAME_MAX = 64,
	/* the exported symbol, and three flags of cuGetProcAddress */
	ROUTES_PER_ROW = 4,
};

struct route {
	uintptr_t address;
	uintptr_t hook;
};

struct binding {
	union {
		struct ca_real real;
		uintptr_t functions[CA_ROW_COUNT]; /* the same, by row */
	};
	unsigned route_count;
	struct route routes[CA_ROW_COUNT * ROUTES_PER_ROW]; /* sorted by address */
};

_Static_assert(sizeof(struct ca_real) == CA_ROW_COUNT * sizeof(uintptr_t), "rows are members");

static struct binding *published;
static __thread struct binding *building __attribute__((tls_model("initial-exec")));

struct library {
	char soname[SONAME_MAX];
	bool defines[CA_ROW_COUNT];
};

static bool
visit_library(const struct ca_object *object, void *arg)
{
	struct library *library = arg;

	if (!ca_object_is_driver(object) || strlen(object->soname) >= SONAME_MAX)
		return false;
	strcpy(library->soname, object->soname);
	for (unsigned i = 0; i < CA_ROW_COUNT; i++)
		library->defines[i] = ca_object_symbol(object, ca_rows[i].symbol, NULL) != 0;
	return true;
}

/* Position of the first route that is not below the address. */
static unsigned
route_bound(const struct binding *binding, uintptr_t address)
{
	unsigned low = 0, high = binding->route_count;

	while (low < high) {
		unsigned middle = low + (high - low) / 2;

		if (binding->routes[middle].address < address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static uintptr_t
route_find(const struct binding *binding, uintptr_t address)
{
	unsigned i = route_bound(binding, address);

	if (i < binding->route_count && binding->routes[i].address == address)
		return binding->routes[i].hook;
	return 0;
}

/* The first route of an address stays: exported symbols come first. */
static void
route_add(struct binding *binding, uintptr_t address, uintptr_t hook)
{
	unsigned i = route_bound(binding, address);

	if (i < binding->route_count && binding->routes[i].address == address)
		return;
	memmove(&binding->routes[i + 1], &binding->routes[i],
		(binding->route_count - i) * sizeof(struct route));
	binding->routes[i] = (struct route){ .address = address, .hook = hook };
	binding->route_count++;
}

static void
take_exported(struct binding *binding, const struct library *library, void *handle)
{
	ca_dlsym_fn *real_dlsym = ca_loader_dlsym();

	for (unsigned i = 0; i < CA_ROW_COUNT; i++) {
		if (!library->defines[i])
			continue;
		binding->functions[i] = (uintptr_t)real_dlsym(handle, ca_rows[i].symbol);
		if (ca_rows[i].hook && binding->functions[i])
			route_add(binding, binding->functions[i], ca_rows[i].hook);
	}
}

uintptr_t
ca_real_query(const struct ca_real *real, const char *base, int version, cuuint64_t flags)
{
	CUdriverProcAddressQueryResult status;
	CUresult result = CUDA_ERROR_NOT_FOUND;
	void *address = NULL;

	if (real->cuGetProcAddress_v2)
		result = real->cuGetProcAddress_v2(base, &address, version, flags, &status);
	else if (real->cuGetProcAddress)
		result = real->cuGetProcAddress(base, &address, version, flags);
	return result == CUDA_SUCCESS ? (uintptr_t)address : 0;
}

struct other {
	const struct ca_row *row;
	uintptr_t address;
	const struct ca_object *object;
};

static bool
visit_other_symbol(const char *symbol, void *arg)
{
	const struct other *other = arg;

	return strcmp(symbol, other->row->symbol) != 0 &&
	       ca_object_symbol(other->object, symbol, NULL) == other->address;
}

static bool
visit_other(const struct ca_object *object, void *arg)
{
	struct other *other = arg;

	other->object = object;
	return ca_object_is_driver(object) &&
	       ca_name_each_symbol(other->row->base, visit_other_symbol, other);
}

/* The driver exports this address as another symbol of the same base name:
 * an ABI that is not the row's. */
static bool
is_other_abi(const struct ca_row *row, uintptr_t address)
{
	struct other other = { .row = row, .address = address };

	return ca_object_walk(visit_other, &other);
}

static bool
visit_per_thread(const char *symbol, void *arg)
{
	const struct ca_row *row = ca_row_of(symbol);

	return row && row->per_thread;
}

static bool
has_per_thread_variant(const struct ca_row *row)
{
	return ca_name_each_symbol(row->base, visit_per_thread, NULL);
}

static void
take_answer(struct binding *binding, unsigned row_index, cuuint64_t flags)
{
	const struct ca_row *row = &ca_rows[row_index];
	uintptr_t address = ca_real_query(&binding->real, row->base, row->version, flags);

	if (!address || address == binding->functions[row_index] || route_find(binding, address) ||
	    is_other_abi(row, address))
		return;
	if (!binding->functions[row_index])
		binding->functions[row_index] = address;
	if (row->hook)
		route_add(binding, address, row->hook);
}

static void
take_answers(struct binding *binding)
{
	for (unsigned i = 0; i < CA_ROW_COUNT; i++) {
		if (ca_rows[i].per_thread) {
			take_answer(binding, i, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
			continue;
		}
		take_answer(binding, i, CU_GET_PROC_ADDRESS_DEFAULT);
		take_answer(binding, i, CU_GET_PROC_ADDRESS_LEGACY_STREAM);
		if (!has_per_thread_variant(&ca_rows[i]))
			take_answer(binding, i, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
	}
}

/*
 * A function that the driver is too old for is not there for us, even if it exports the name: some
 * answer with an error only when called. A hook keeps its function, since the program's call is the
 * program's.
 */
static void
drop_newer(struct binding *binding)
{
	int version;

	if (!binding->real.cuDriverGetVersion || binding->real.cuDriverGetVersion(&version))
		return;
	for (unsigned i = 0; i < CA_ROW_COUNT; i++)
		if (!ca_rows[i].hook && ca_rows[i].version > version)
			binding->functions[i] = 0;
}

static struct binding *
build(void)
{
	struct library library = { .soname = "" };
	ca_dlopen_fn *real_dlopen = ca_loader_dlopen();
	struct binding *binding;
	void *handle;

	if (!real_dlopen || !ca_object_walk(visit_library, &library))
		return NULL;
	handle = real_dlopen(library.soname, RTLD_LAZY | RTLD_NOLOAD);
	if (!handle)
		return NULL;
	binding = mmap(NULL, sizeof(*binding), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		       -1, 0);
	if (binding == MAP_FAILED)
		return NULL;
	take_exported(binding, &library, handle);
	building = binding;
	drop_newer(binding);
	take_answers(binding);
	building = NULL;
	return binding;
}

/* Apart, so that what every hook calls saves no registers. */
static __attribute__((noinline, cold)) const struct ca_real *
bind_driver(void)
{
	struct binding *expected = NULL, *binding;
	CA_KEEP_ERRNO;

	if (building)
		return &building->real;
	binding = build();
	if (binding && !__atomic_compare_exchange_n(&published, &expected, binding, false,
						    __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
		munmap(binding, sizeof(*binding));
		binding = expected;
	}
	return binding ? &binding->real : NULL;
}

const struct ca_real *
ca_real(void)
{
	struct binding *binding = __atomic_load_n(&published, __ATOMIC_ACQUIRE);

	return binding ? &binding->real : bind_driver();
}

uintptr_t
ca_route(uintptr_t real_address)
{
	struct binding *binding = __atomic_load_n(&published, __ATOMIC_ACQUIRE);

	return binding ? route_find(binding, real_address) : 0;
}
