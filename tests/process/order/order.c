/* SPDX-License-Identifier: MIT */
#include "tests/process/order/order.h"

#include <time.h>

enum { KERNEL_COUNT = 6, SPACE_COUNT = 8, THREADS_MAX = 16, WARM_COUNT = 6 };

static const char *const kernel_names[KERNEL_COUNT] = { "sim_fill", "sim_check",  "sim_copy",
							"sim_wait", "sim_signal", "sim_fault" };

/* What a context needs: its kernels, and where checks count. */
struct place {
	unsigned long long id; /* of the context; 0: free entry */
	CUfunction kernel[KERNEL_COUNT];
	uint64_t *errors; /* page-locked: setting and reading it submits nothing */
};

static struct place places[SPACE_COUNT];
static pthread_mutex_t places_lock = PTHREAD_MUTEX_INITIALIZER;

/* ORDER_LIBRARY=1: the kernels are those of a library, launched as they are, without a function. */
static void
kernels_of_library(struct place *place)
{
	CUlibrary library;
	CUkernel kernel;

	OK(cuLibraryLoadData(&library, "simcuda", NULL, NULL, 0, NULL, NULL, 0));
	for (int i = 0; i < KERNEL_COUNT; i++) {
		OK(cuLibraryGetKernel(&kernel, library, kernel_names[i]));
		place->kernel[i] = (CUfunction)(void *)kernel;
	}
}

static void
kernels_of_module(struct place *place)
{
	CUmodule module;

	OK(cuModuleLoadData(&module, "simcuda"));
	for (int i = 0; i < KERNEL_COUNT; i++)
		OK(cuModuleGetFunction(&place->kernel[i], module, kernel_names[i]));
}

static void
place_fill(struct place *place)
{
	if (getenv("ORDER_LIBRARY"))
		kernels_of_library(place);
	else
		kernels_of_module(place);
	OK(cuMemHostAlloc((void **)&place->errors, sizeof(*place->errors), 0));
	*place->errors = 0;
}

static struct place *
place_here(void)
{
	unsigned long long id;
	struct place *place = places;

	OK(cuCtxGetId(NULL, &id));
	pthread_mutex_lock(&places_lock);
	while (place < places + SPACE_COUNT && place->id && place->id != id)
		place++;
	EXPECT(place < places + SPACE_COUNT);
	if (!place->id) {
		place_fill(place);
		place->id = id;
	}
	pthread_mutex_unlock(&places_lock);
	return place;
}

/* ORDER_WARM=1: the thread begins with blocks in its hands, of the sizes that the cases use, which
 * nobody has touched. Once in a context. (All are taken first: who looks for memory gets what a
 * thread keeps.) */
static void
warm_up(const struct place *place)
{
	static const size_t sizes[WARM_COUNT] = { BIG, BIG, PART, PART, MIB, 4 * WORDS };
	static __thread unsigned warm; /* a bit for each place */
	CUdeviceptr x[WARM_COUNT];

	if (!getenv("ORDER_WARM") || warm & 1u << (place - places))
		return;
	warm |= 1u << (place - places);
	for (int i = 0; i < WARM_COUNT; i++)
		x[i] = order_take(sizes[i]);
	for (int i = 0; i < WARM_COUNT; i++)
		order_give(x[i]);
}

CUcontext
order_start(void)
{
	CUcontext context;

	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&context, 0));
	order_enter(context);
	return context;
}

CUcontext
order_context(int device)
{
	CUcontext context;

	OK(cuInit(0));
	OK(cuCtxCreate_v2(&context, 0, device));
	warm_up(place_here());
	return context;
}

void
order_enter(CUcontext context)
{
	OK(cuCtxSetCurrent(context));
	warm_up(place_here());
}

CUfunction
order_kernel(const char *name)
{
	int i = 0;

	while (strcmp(kernel_names[i], name) != 0)
		i++;
	return place_here()->kernel[i];
}

CUstream
order_stream(unsigned flags)
{
	CUstream stream;

	OK(cuStreamCreate(&stream, flags));
	return stream;
}

CUdeviceptr
order_take(size_t bytes)
{
	CUdeviceptr memory;

	OK(cuMemAlloc_v2(&memory, bytes));
	return memory;
}

void
order_give(CUdeviceptr memory)
{
	OK(cuMemFree_v2(memory));
}

CUdeviceptr
order_again(CUdeviceptr memory, size_t bytes)
{
	order_give(memory);
	return order_take(bytes);
}

CUevent
order_event(void)
{
	CUevent event;

	OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	return event;
}

volatile uint32_t *
order_word(void)
{
	void *word;

	OK(cuMemHostAlloc(&word, sizeof(uint32_t), 0));
	*(volatile uint32_t *)word = 0;
	return word;
}

static void
launch(const char *name, void **args, CUstream stream)
{
	OK(cuLaunchKernel(order_kernel(name), 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
}

void
order_fill(CUdeviceptr memory, uint32_t value, uint64_t spin_us, CUstream stream)
{
	uint64_t words = WORDS, word = value;

	launch("sim_fill", (void *[]){ &memory, &words, &word, &spin_us }, stream);
}

void
order_copy(CUdeviceptr target, CUdeviceptr source, uint64_t spin_us, CUstream stream)
{
	uint64_t words = WORDS;

	launch("sim_copy", (void *[]){ &target, &source, &words, &spin_us }, stream);
}

void
order_check(CUdeviceptr memory, uint32_t value, CUstream stream)
{
	uint64_t words = WORDS, word = value, spin_us = 0;
	CUdeviceptr errors = (CUdeviceptr)(uintptr_t)place_here()->errors;

	launch("sim_check", (void *[]){ &memory, &words, &word, &errors, &spin_us }, stream);
}

void
order_use(CUdeviceptr memory, uint32_t value, CUstream stream)
{
	order_fill(memory, value, 0, stream);
	order_check(memory, value, stream);
}

void
order_wait(volatile uint32_t *word, uint32_t value, CUstream stream)
{
	CUdeviceptr at = (CUdeviceptr)(uintptr_t)word;
	uint64_t want = value;

	launch("sim_wait", (void *[]){ &at, &want }, stream);
}

void
order_fault(void)
{
	uint64_t code = 700, spin_us = 0; /* an illegal address */

	launch("sim_fault", (void *[]){ &code, &spin_us }, NULL);
	EXPECT(cuCtxSynchronize() == code);
}

void
order_signal(volatile uint32_t *word, uint32_t value, CUstream stream)
{
	CUdeviceptr at = (CUdeviceptr)(uintptr_t)word;
	uint64_t want = value;

	launch("sim_signal", (void *[]){ &at, &want }, stream);
}

void
order_fill_ptsz(CUdeviceptr memory, uint32_t value, uint64_t spin_us, CUstream stream)
{
	uint64_t words = WORDS, word = value;
	void *args[] = { &memory, &words, &word, &spin_us };

	OK(cuLaunchKernel_ptsz(order_kernel("sim_fill"), 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
}

void
order_check_ptsz(CUdeviceptr memory, uint32_t value, CUstream stream)
{
	uint64_t words = WORDS, word = value, spin_us = 0;
	CUdeviceptr errors = (CUdeviceptr)(uintptr_t)place_here()->errors;
	void *args[] = { &memory, &words, &word, &errors, &spin_us };

	OK(cuLaunchKernel_ptsz(order_kernel("sim_check"), 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
}

void
order_fill_with(CUlaunchAttribute *attribute, CUdeviceptr memory, uint32_t value, uint64_t spin_us,
		CUstream stream)
{
	uint64_t words = WORDS, word = value;
	void *args[] = { &memory, &words, &word, &spin_us };
	CUlaunchConfig config = { 1, 1, 1, 1, 1, 1, 0, stream, attribute, 1 };

	OK(cuLaunchKernelEx(&config, order_kernel("sim_fill"), args, NULL));
}

uint64_t
order_wrong(CUdeviceptr memory, uint32_t value)
{
	uint32_t *copy = malloc(WORDS * sizeof(*copy));
	uint64_t wrong = 0;

	EXPECT(copy);
	OK(cuMemcpyDtoH_v2(copy, memory, WORDS * sizeof(*copy)));
	for (int i = 0; i < WORDS; i++)
		wrong += copy[i] != value;
	free(copy);
	return wrong;
}

void
order_end(void)
{
	OK(cuCtxSynchronize_v2(NULL));
	EXPECT(*place_here()->errors == 0);
}

/* -------------------------------------------------------------- threads --- */
struct order_thread {
	pthread_t thread;
	CUcontext context;
	void (*run)(int);
	int number;
};

static void *
thread_main(void *arg)
{
	const struct order_thread *self = arg;

	order_enter(self->context);
	self->run(self->number);
	return NULL;
}

void
order_threads(int n, void (*run)(int number))
{
	struct order_thread threads[THREADS_MAX];

	EXPECT(n <= THREADS_MAX);
	for (int i = 0; i < n; i++) {
		threads[i] = (struct order_thread){ .run = run, .number = i };
		OK(cuCtxGetCurrent(&threads[i].context));
		EXPECT(!pthread_create(&threads[i].thread, NULL, thread_main, &threads[i]));
	}
	for (int i = 0; i < n; i++)
		EXPECT(!pthread_join(threads[i].thread, NULL));
}

void
order_sleep(unsigned us)
{
	struct timespec time = { .tv_nsec = (long)us * 1000 };

	nanosleep(&time, NULL);
}

int
main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "--list";
	bool list = !strcmp(name, "--list");

	for (int i = 0; order_cases[i]; i++) {
		for (const struct order_case *one = order_cases[i]; one->name; one++) {
			if (list) {
				puts(one->name);
			} else if (!strcmp(name, one->name)) {
				one->run();
				return 0;
			}
		}
	}
	return list ? 0 : 2;
}
