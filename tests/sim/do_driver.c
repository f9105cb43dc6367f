/* SPDX-License-Identifier: MIT */
/*
 * Bodies: the driver as a whole (initialisation, version, look-up of entry points, error names).
 * The private tables behind cuGetExportTable are NVIDIA's own affair: none is imitated, their ids
 * are unknown. SIMCUDA_PRIVATE_TABLE=1 gives one of our own, under an id of our own, and =any an
 * empty one for any other id; SIMCUDA_FUTURE=1 entry points that are in no table. One of these is
 * exported, whatever the knob: a program is linked to it.
 */
#include <errno.h>
#include <string.h>

#include "tests/sim/bodies.h"
#include "tests/sim/call.h"
#include "tests/sim/names.h"

int
simb_do_cuInit(unsigned int Flags)
{
	return Flags ? simb_misuse(CUDA_ERROR_INVALID_VALUE, "flags must be 0") : simb_start();
}

int
simb_do_cuDriverGetVersion(int *driverVersion)
{
	if (!driverVersion)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "no place for the version");
	*driverVersion = simb_knobs()->driver_version;
	return 0;
}

/* Submits like a kernel launch, and no exported function is called: nothing that wraps those sees
 * it, as with the private tables that some libraries use natively. It is neither counted nor
 * logged. */
static CUresult
private_fill(CUdeviceptr dst, unsigned int value, size_t n_words, CUstream stream)
{
	uint64_t args[] = { dst, n_words, value, 0 };

	return (CUresult)sim_kernel_launch(SIM_KERNEL_FILL, args, stream);
}

__attribute__((visibility("default"))) simb_private_fill cuFutureFill;

CUresult
cuFutureFill(CUdeviceptr dst, unsigned int value, size_t n_words, CUstream stream)
{
	return private_fill(dst, value, n_words, stream);
}

static CUresult
future_begin_capture(CUstream stream, CUstreamCaptureMode mode)
{
	return (CUresult)simb_do_cuStreamBeginCapture_v2(stream, mode);
}

static void *
address_of(const char *symbol, int index)
{
	if (index >= 0)
		return (void *)(uintptr_t)simb_names[index].addr;
	if (simb_knobs()->future && !strcmp(symbol, SIMB_FUTURE_NAME))
		return (void *)(uintptr_t)cuFutureFill;
	if (simb_knobs()->future && !strcmp(symbol, SIMB_FUTURE_CAPTURE_NAME))
		return (void *)(uintptr_t)future_begin_capture;
	return NULL;
}

int
simb_do_cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
			    CUdriverProcAddressQueryResult *symbolStatus)
{
	CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
	int driver_version = simb_knobs()->driver_version;
	int index;

	/* a question, not a misuse: programs probe with it */
	if (!symbol || !pfn || cudaVersion > driver_version ||
	    flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
		return CUDA_ERROR_INVALID_VALUE;
	index = simb_name_query(symbol, cudaVersion, flags, driver_version);
	*pfn = address_of(symbol, index);
	if (!*pfn)
		status = index == -ERANGE ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
					  : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	if (symbolStatus)
		*symbolStatus = status;
	return 0;
}

int
simb_do_cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)
{
	return simb_do_cuGetProcAddress_v2(symbol, pfn, cudaVersion, flags, NULL);
}

static const struct simb_private_table private_table = {
	.n_bytes = sizeof(private_table),
	.fill = private_fill,
};

int
simb_do_cuGetExportTable(const void **ppExportTable, const CUuuid *pExportTableId)
{
	static const size_t empty_table = sizeof(empty_table);
	bool ours;

	if (!ppExportTable || !pExportTableId)
		return CUDA_ERROR_INVALID_VALUE;
	ours = !memcmp(pExportTableId->bytes, SIMB_PRIVATE_TABLE_ID, sizeof(pExportTableId->bytes));
	if (!simb_knobs()->private_table || (!ours && !simb_knobs()->every_table))
		return CUDA_ERROR_NOT_FOUND;
	*ppExportTable = ours ? (const void *)&private_table : &empty_table;
	return 0;
}

static const struct {
	int code;
	const char *name, *text;
} errors[] = {
#define SIM_ERROR(name, value, text) { value, #name, text },
#include "tests/sim/errors.def"
#undef SIM_ERROR
};

/* Index into errors[], or -ENOENT. */
static int
error_find(CUresult code)
{
	for (int i = 0; i < (int)(sizeof(errors) / sizeof(errors[0])); i++)
		if (errors[i].code == (int)code)
			return i;
	return -ENOENT;
}

/* For an unknown code the pointer is set to NULL, as cuda.h says. */
int
simb_do_cuGetErrorName(CUresult error, const char **pStr)
{
	int i = error_find(error);

	if (!pStr)
		return CUDA_ERROR_INVALID_VALUE;
	*pStr = i < 0 ? NULL : errors[i].name;
	return i < 0 ? CUDA_ERROR_INVALID_VALUE : 0;
}

int
simb_do_cuGetErrorString(CUresult error, const char **pStr)
{
	int i = error_find(error);

	if (!pStr)
		return CUDA_ERROR_INVALID_VALUE;
	*pStr = i < 0 ? NULL : errors[i].text;
	return i < 0 ? CUDA_ERROR_INVALID_VALUE : 0;
}
