/* SPDX-License-Identifier: MIT */
/*
 * cuGetProcAddress, in both its ABIs.
 *
 * The real one is asked first, with the program's own arguments. Only where it succeeded with an
 * address is that address replaced: by the entry point of ours that the route table has for it,
 * which carries ABI version and stream flavour by construction, or by a counting thunk if we do not
 * know the entry point. symbolStatus, error codes, and everything else are the driver's.
 *
 * Known means: the name is in cuda_names.def, and either a version of our table's time was asked
 * for, or the driver gives the same address for a version of our table's time.
 */
#include "shim/bind/hooks.h"

#include "config/log.h"
#include "shim/bind/libcuda.h"
#include "shim/bind/loader.h"
#include "shim/bind/object.h"
#include "shim/bind/scope.h"
#include "shim/bind/unseen_calls.h"
#include "shim/process/lifecycle.h"

static bool
is_known(const struct ca_real *real, const char *symbol, int version, cuuint64_t flags,
	 void *address)
{
	int newest = ca_name_newest_version();

	if (!ca_name_is_base(symbol))
		return ca_name_is_symbol(symbol);
	return version <= newest ||
	       ca_real_query(real, symbol, newest, flags) == (uintptr_t)address;
}

/* Only what the driver's own code holds gets a thunk: nothing else is sure to be a function. */
static uintptr_t
route_unknown(uintptr_t address)
{
	if (ca_object_driver_holds(address))
		return ca_unseen_thunk(address);
	ca_unseen_note_lookup();
	return 0;
}

/* The driver has answered with `result`. */
static CUresult
replace(const struct ca_real *real, CUresult result, const char *symbol, void **pfn, int version,
	cuuint64_t flags)
{
	enum ca_answer outcome = CA_ANSWER_OURS;
	uintptr_t address, answer;
	CA_KEEP_ERRNO;

	if (result != CUDA_SUCCESS || !symbol || !pfn || !*pfn)
		return result;
	address = (uintptr_t)*pfn;
	answer = ca_route(address);
	if (!answer) {
		outcome = CA_ANSWER_DRIVER;
		if (!is_known(real, symbol, version, flags, *pfn))
			answer = route_unknown(address);
		if (answer)
			outcome = CA_ANSWER_THUNK;
	}
	if (answer)
		*pfn = (void *)answer;
	ca_loader_note_lookup("cuGetProcAddress", symbol, outcome);
	return result;
}

/* The configuration is read here at the latest,
 * so that its debug lines cover the program's first look-ups. */
static const struct ca_real *
enter(void)
{
	const struct ca_real *real = ca_real();

	ca_process();
	ca_loader_set_verbose(ca_log_enabled(CA_LOG_DEBUG));
	return real;
}

CUresult
cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)
{
	const struct ca_real *real = enter();
	CUresult result;

	if (!real || !real->cuGetProcAddress)
		return CUDA_ERROR_NOT_INITIALIZED;
	result = real->cuGetProcAddress(symbol, pfn, cudaVersion, flags);
	return replace(real, result, symbol, pfn, cudaVersion, flags);
}

CUresult
cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
		    CUdriverProcAddressQueryResult *symbolStatus)
{
	const struct ca_real *real = enter();
	CUresult result;

	if (!real || !real->cuGetProcAddress_v2)
		return CUDA_ERROR_NOT_INITIALIZED;
	result = real->cuGetProcAddress_v2(symbol, pfn, cudaVersion, flags, symbolStatus);
	return replace(real, result, symbol, pfn, cudaVersion, flags);
}
