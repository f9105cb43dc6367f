/* SPDX-License-Identifier: MIT */
/* One job: sets the script's scene, runs its threads step by step, and looks at what the buffers
 * hold. */
#include "tests/process/order/rendezvous.h"

#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/process/order/order.h"

enum { SIZE = 12 << 20, OTHER_SIZE = 14 << 20, FILL_WORDS = 1024, SPIN_US = 150, PACE_US = 1000 };

struct buffer {
	CUdeviceptr memory;
	unsigned device;
	uint32_t value; /* of its last fill; 0: none since it was taken */
};

struct actor {
	pthread_t thread;
	bool started;
	unsigned number;
	uint32_t n_fills;
	uint64_t random;
	struct buffer buffer[BUFFERS];
};

static const struct job *job;
static struct actor actors[THREADS_MAX];
static CUcontext contexts[2];
static CUfunction kernels[2][3]; /* fill, wait, signal */
static CUstream streams[STREAMS_MAX];
static CUevent events[STREAMS_MAX];
static volatile uint32_t *words;
static pthread_mutex_t mutexes[STREAMS_MAX];
static pthread_barrier_t meeting;
static int pipes[STREAMS_MAX][2];

/* Exported by the simulated driver: runs what can run, with a manual clock. */
unsigned long long simcuda_step(unsigned long long n);

unsigned
script_steps(const struct script *script, unsigned thread)
{
	const char *text = thread < THREADS_MAX ? script->thread[thread] : NULL;

	return text ? (unsigned)(strlen(text) + 1) / STEP : 0;
}

static bool
listed(const char *list, char stream)
{
	return list && stream && strchr(list, stream);
}

static unsigned
device_of(char stream)
{
	return listed(job->script->far, stream);
}

/* Makes the stream's context current: submissions need their kernels. */
static CUstream
stream_of(char name)
{
	OK(cuCtxSetCurrent(contexts[device_of(name)]));
	if (name == 'n')
		return NULL;
	return name == 'p' ? CU_STREAM_PER_THREAD : streams[name - '0'];
}

static void
stream_create(char name)
{
	OK(cuCtxSetCurrent(contexts[device_of(name)]));
	OK(cuStreamCreate(&streams[name - '0'],
			  listed(job->script->blocking, name) ? BLOCKING : NONBLOCKING));
}

static void
buffer_take(struct buffer *buffer, size_t bytes)
{
	OK(cuCtxSetCurrent(contexts[buffer->device]));
	OK(cuMemAlloc_v2(&buffer->memory, bytes));
	buffer->value = 0;
}

/* ---------------------------------------------------------------- steps --- */
static void
launch(unsigned kernel, char stream, void **args)
{
	CUstream handle = stream_of(stream);

	OK(cuLaunchKernel(kernels[device_of(stream)][kernel], 1, 1, 1, 1, 1, 1, 0, handle, args,
			  NULL));
}

static void
step_fill(struct actor *self, const char *step)
{
	struct buffer *buffer = &self->buffer[step[2] - '0'];
	uint64_t n = FILL_WORDS, value = (self->number + 1) << 16 | ++self->n_fills, spin = SPIN_US;
	void *args[] = { &buffer->memory, &n, &value, &spin };

	if (step[0] == 'f')
		launch(0, step[1], args);
	else
		OK(cuMemsetD32Async(buffer->memory, (uint32_t)value, n, stream_of(step[1])));
	buffer->value = (uint32_t)value;
}

static void
step_value(const char *step, char what)
{
	CUdeviceptr at = (CUdeviceptr)(uintptr_t)&words[step[2] - '0'];
	uint32_t value = (uint32_t)(step[3] - '0');
	uint64_t wide = value;
	CUstreamBatchMemOpParams op = { .pad = { 0 } };
	void *args[] = { &at, &wide };

	if (what == 'w' || what == 's') {
		launch(what == 'w' ? 1 : 2, step[1], args);
	} else if (what == 'v') {
		OK(cuStreamWaitValue32_v2(stream_of(step[1]), at, value, 0));
	} else if (what == 'u') {
		OK(cuStreamWriteValue32_v2(stream_of(step[1]), at, value, 0));
	} else {
		op.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
		op.waitValue.address = at;
		op.waitValue.value = value;
		OK(cuStreamBatchMemOp_v2(stream_of(step[1]), 1, &op, 0));
	}
}

static void
host_mutex(void *arg)
{
	pthread_mutex_lock(arg);
	pthread_mutex_unlock(arg);
}

static void
host_read(void *arg)
{
	char c;

	EXPECT(read(((int *)arg)[0], &c, 1) == 1);
}

static void
host_write(void *arg)
{
	EXPECT(write(((int *)arg)[1], "x", 1) == 1);
}

static void actor_start(unsigned number);

/* Steps that only the host takes. */
static void
step_host(const char *step)
{
	unsigned n = (unsigned)(step[2] - '0');
	uint32_t value = (uint32_t)(step[3] - '0');

	switch (step[0]) {
	case 'h':
		__atomic_store_n(&words[n], value, __ATOMIC_RELEASE);
		break;
	case 'p':
		while (__atomic_load_n(&words[n], __ATOMIC_ACQUIRE) != value)
			simcuda_step(1); /* with a manual clock the device needs us to go on */
		break;
	case 'l':
		pthread_mutex_lock(&mutexes[n]);
		break;
	case 'k':
		pthread_mutex_unlock(&mutexes[n]);
		break;
	case 'z':
		host_write(pipes[n]);
		break;
	case 't':
		actor_start(n);
		break;
	case 'g':
		pthread_barrier_wait(&meeting);
		break;
	default:
		EXPECT(!"a step");
	}
}

static void
step_take(struct actor *self, const char *step)
{
	unsigned n = (unsigned)(step[2] - '0');

	switch (step[0]) {
	case 'f':
	case 'm':
		step_fill(self, step);
		break;
	case 'c':
		stream_create(step[1]);
		break;
	case 'y':
		OK(cuStreamSynchronize(stream_of(step[1])));
		break;
	case 'e':
		OK(cuEventRecord(events[n], stream_of(step[1])));
		break;
	case 'a':
		OK(cuStreamWaitEvent(stream_of(step[1]), events[n], 0));
		break;
	case 'q':
		OK(cuLaunchHostFunc(stream_of(step[1]), host_mutex, &mutexes[n]));
		break;
	case 'r':
		OK(cuLaunchHostFunc(stream_of(step[1]), host_read, pipes[n]));
		break;
	case 'x':
		OK(cuLaunchHostFunc(stream_of(step[1]), host_write, pipes[n]));
		break;
	default:
		if (strchr("wsvub", step[0]))
			step_value(step, step[0]);
		else
			step_host(step);
	}
}

/* --------------------------------------------------------------- threads --- */
static bool
inserted_into(unsigned thread)
{
	for (unsigned i = 0; i < job->n; i++)
		if (job->where[i].thread == thread)
			return true;
	return false;
}

static void
pace(struct actor *self)
{
	if (job->pace >= PACE_RANDOM) {
		self->random = self->random * 6364136223846793005u + 1442695040888963407u;
		if (self->random >> 63)
			usleep((self->random >> 40) % 400);
	} else if (job->pace != PACE_NONE &&
		   inserted_into(self->number) == (job->pace == PACE_SLOW)) {
		usleep(PACE_US);
	}
}

static void
insertion(struct actor *self)
{
	struct buffer *buffer = &self->buffer[job->buffer];

	OK(cuCtxSetCurrent(contexts[buffer->device]));
	OK(cuMemFree_v2(buffer->memory));
	buffer_take(buffer, job->other_size ? OTHER_SIZE : SIZE);
}

static void *
actor_main(void *arg)
{
	struct actor *self = arg;
	const char *text = job->script->thread[self->number];
	unsigned n = script_steps(job->script, self->number);

	OK(cuCtxSetCurrent(contexts[self->buffer[0].device]));
	self->random = self->number + (uint64_t)job->pace * 7919;
	for (unsigned at = 0; at <= n; at++) {
		pace(self);
		for (unsigned i = 0; i < job->n; i++)
			if (job->where[i].thread == self->number && job->where[i].at == at)
				insertion(self);
		if (at < n)
			step_take(self, text + (size_t)at * STEP);
	}
	return NULL;
}

static void
actor_start(unsigned number)
{
	struct actor *actor = &actors[number];

	actor->started = true;
	EXPECT(!pthread_create(&actor->thread, NULL, actor_main, actor));
}

/* A buffer lives where the program first fills it. */
static void
actor_prepare(unsigned number)
{
	const char *text = job->script->thread[number];
	unsigned n = script_steps(job->script, number);
	struct actor *self = &actors[number];

	self->number = number;
	self->buffer[0].device = self->buffer[1].device = device_of(text[1]);
	for (unsigned b = 0; b < BUFFERS; b++) {
		for (unsigned at = n; at-- > 0;) {
			const char *step = text + (size_t)at * STEP;

			if ((step[0] == 'f' || step[0] == 'm') && step[2] == (char)('0' + b))
				self->buffer[b].device = device_of(step[1]);
		}
		buffer_take(&self->buffer[b], SIZE);
	}
}

/* ----------------------------------------------------------------- scene --- */
static void
context_make(unsigned device)
{
	static const char *const names[] = { "sim_fill", "sim_wait", "sim_signal" };
	CUmodule module;

	OK(cuDevicePrimaryCtxRetain(&contexts[device], (CUdevice)device));
	OK(cuCtxSetCurrent(contexts[device]));
	OK(cuModuleLoadData(&module, "simcuda"));
	for (int i = 0; i < 3; i++)
		OK(cuModuleGetFunction(&kernels[device][i], module, names[i]));
}

/* Whether some step of the script says `what` of stream or thread `which`. */
static bool
says(char what, char which)
{
	for (unsigned t = 0; script_steps(job->script, t); t++)
		for (const char *s = job->script->thread[t]; s; s = s[4] ? s + STEP : NULL)
			if ((!what || s[0] == what) && s[what == 't' ? 2 : 1] == which)
				return true;
	return false;
}

static void
scene_set(unsigned first, unsigned n_actors)
{
	void *p;

	OK(cuInit(0));
	for (unsigned d = 0; d < (job->script->far ? 2u : 1u); d++)
		context_make(d);
	OK(cuCtxSetCurrent(contexts[0]));
	OK(cuMemHostAlloc(&p, 4096, 0));
	words = p;
	memset(p, 0, 4096);
	for (int digit = '0'; digit <= '9'; digit++) {
		char s = (char)digit;

		if (says(0, s) && !says('c', s))
			stream_create(s);
		pthread_mutex_init(&mutexes[s - '0'], NULL);
	}
	OK(cuCtxSetCurrent(contexts[0]));
	for (unsigned e = 0; e < 4; e++)
		OK(cuEventCreate(&events[e], CU_EVENT_DISABLE_TIMING));
	for (unsigned t = first; t < first + n_actors; t++)
		actor_prepare(t);
	pthread_barrier_init(&meeting, NULL, n_actors);
}

static void
buffer_look(const struct buffer *buffer)
{
	uint32_t found[FILL_WORDS];

	if (!buffer->value)
		return;
	OK(cuCtxSetCurrent(contexts[buffer->device]));
	OK(cuMemcpyDtoH_v2(found, buffer->memory, sizeof(found)));
	for (int i = 0; i < FILL_WORDS; i++)
		EXPECT(found[i] == buffer->value);
}

static void
scene_play(unsigned first, unsigned n_actors)
{
	scene_set(first, n_actors);
	for (unsigned t = first + 1; t < first + n_actors; t++)
		if (!says('t', (char)('0' + t)))
			actor_start(t);
	actor_main(&actors[first]);
	for (unsigned t = first + 1; t < first + n_actors; t++)
		EXPECT(actors[t].started && !pthread_join(actors[t].thread, NULL));
	for (unsigned d = 0; d < (job->script->far ? 2u : 1u); d++) {
		OK(cuCtxSetCurrent(contexts[d]));
		OK(cuCtxSynchronize());
	}
	for (unsigned t = first; t < first + n_actors; t++)
		for (unsigned b = 0; b < BUFFERS; b++)
			buffer_look(&actors[t].buffer[b]);
}

void
job_run(const struct job *this)
{
	unsigned n_actors = 0;
	int status = 0;
	pid_t other;

	job = this;
	while (script_steps(job->script, n_actors))
		n_actors++;
	for (int i = 0; i < STREAMS_MAX; i++)
		EXPECT(!pipe(pipes[i]));
	if (!job->script->processes) {
		scene_play(0, n_actors);
		_exit(0);
	}
	other = fork();
	EXPECT(other >= 0);
	scene_play(other ? 0 : 1, 1);
	if (other)
		EXPECT(waitpid(other, &status, 0) == other);
	_exit(status != 0);
}
