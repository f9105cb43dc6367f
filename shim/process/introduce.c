/* SPDX-License-Identifier: MIT */
/*
 * Paths come from the list of loaded objects: dladdr() is in libdl before glibc 2.34, and asking
 * needs no more than an address that lies in the object.
 */
#include "shim/process/introduce.h"

#include <errno.h>
#include <stdatomic.h>
#include <unistd.h>

#include "config/log.h"
#include "config/path.h"
#include "config/text.h"
#include "shim/bind/libcuda.h"
#include "shim/bind/loader.h"
#include "shim/bind/object.h"
#include "shim/bind/scope.h"
#include "shim/state/process.h"

static atomic_flag told = ATOMIC_FLAG_INIT; /* the first allocation */

struct search {
	uintptr_t address;
	char path[CA_PATH_MAX];
};

static bool
visit(const struct ca_object *object, void *arg)
{
	struct search *search = arg;

	if (!ca_object_holds(object, search->address))
		return false;
	ca_text_escape(search->path, sizeof(search->path), object->path);
	return true;
}

/* As the loader opened it; "an unknown file" where no object holds the address. */
static const char *
path_of(struct search *search, uintptr_t address)
{
	search->address = address;
	search->path[0] = '\0';
	return ca_object_walk(visit, search) && search->path[0] ? search->path : "an unknown file";
}

/* Looked for once: a forked child could wait for the loader's lock for ever. */
void
ca_introduce_library(void)
{
	static struct search search;
	static const char *path;
	CA_KEEP_ERRNO;

	if (!path)
		path = path_of(&search, (uintptr_t)ca_introduce_library);
	ca_info("version %s, pid %d, library %s", CA_VERSION, (int)getpid(), path);
}

/* To be read after "calls are ". */
static const char *
source_name(void)
{
	static const char *const texts[] = {
		[0] = "linked by name",
		[CA_ROAD_DLSYM] = "looked up by dlsym",
		[CA_ROAD_GETPROC] = "looked up by cuGetProcAddress",
		[CA_ROAD_DLSYM | CA_ROAD_GETPROC] = "looked up by dlsym and cuGetProcAddress",
	};

	return texts[ca_loader_sources()];
}

void
ca_introduce_device(CUdevice device, const char *name, const char *uuid)
{
	const struct ca_real *real = ca_real();
	struct search search;
	CA_KEEP_ERRNO;
	int version = 0;

	if (real && real->cuDriverGetVersion &&
	    CA_INSIDE(real->cuDriverGetVersion(&version)) != CUDA_SUCCESS)
		version = 0;
	ca_info("device %d: %s%s%s; driver of CUDA %d.%d, %s; calls are %s", (int)device,
		*name ? name : "without a name", *uuid ? ", " : "", uuid, version / 1000,
		version % 1000 / 10,
		path_of(&search, real ? (uintptr_t)real->cuDriverGetVersion : 0), source_name());
}

void
ca_introduce_allocation(size_t bytes, bool cached)
{
	CA_KEEP_ERRNO;

	if (ca_log_enabled(CA_LOG_INFO) && !atomic_flag_test_and_set(&told))
		ca_info("first allocation: %zu bytes, %s", bytes,
			cached ? "served here" : "straight to the driver");
}

void
ca_introduce_after_fork_child(void)
{
	atomic_flag_clear(&told);
}
