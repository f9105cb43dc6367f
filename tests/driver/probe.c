/* SPDX-License-Identifier: MIT */
/*
 * Asks for the functions of NVIDIA's driver library by every road, and calls each; the same for its
 * runtime. One line a question or a call: the tests compare the lines of a run with the library to
 * those of a run without.
 *
 *   probe lookup      by direct link; by dlsym of the handle, of the global scope, of RTLD_NEXT
 *   probe proc        by both ABIs of cuGetProcAddress, for each version and flag below
 *   probe call SEED   each before START and after it, until the process ends, then on in a new one
 *   probe start       START alone
 *
 * The environment's PROBE_KEEPS names a library that `call` and `start` keep loaded. A runtime
 * closes a driver that refuses, while a thread of the driver's own still runs in it: 30 of 400 such
 * processes end by SIGSEGV on a busy machine. The library keeps the driver loaded, too.
 *
 * The tests write names.h: FILE_NAME, of the library (NULL: it is linked statically); START, the
 * function that initialises it; and lists, as X(name) X(name) ...: EXPORTED, its functions; ASKED,
 * what dlsym and cuGetProcAddress are asked for. CALLED has X(name, kinds), a letter an argument:
 * p pointer or handle, s stream, n number; p for what is beyond.
 *
 * An address reads as `driver+OFFSET`, as `ours NAME` where an exported function of the library
 * stands, as `thunk` elsewhere in it, or as `-`.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "names.h"

typedef int start(long);
typedef int entry(long, long, long, long, long, long, long, long, long, long, long, long);
typedef int proc_v1(const char *, void **, int, unsigned long long);
typedef int proc_v2(const char *, void **, int, unsigned long long, int *);

#define DECLARE(name) extern char name[];
EXPORTED(DECLARE)

struct function {
	const char *name;
	char *direct;
	const char *kinds;
};

#define NAME(name) #name,
#define FUNCTION(name) { #name, name, "" },
#define CALL(name, kinds) { #name, name, kinds },
static const char *const asked[] = { ASKED(NAME) };
static const struct function exported[] = { EXPORTED(FUNCTION) };
static const struct function called[] = { CALLED(CALL) };

enum { ARGUMENTS = 12 };

#define LENGTH(array) (sizeof(array) / sizeof *(array))

static const int versions[] = { 0,     2000,  3020,  4000,  5050,  6050,  7000,  8000,
				10000, 11000, 11030, 11080, 12000, 12050, 13000, 99000 };
/* default, legacy, per thread, and one that is not defined */
static const unsigned long long flags[] = { 0, 1, 2, 4 };

/* The text is kept until the third call after this one. */
static const char *
place(void *address)
{
	static char texts[4][160];
	static unsigned turn;
	char *text = texts[turn++ % 4];
	const char *file;
	Dl_info info = { 0 };

	if (!address)
		return "-";
	if (!dladdr(address, &info))
		return "nowhere";
	file = strrchr(info.dli_fname, '/');
	file = file ? file + 1 : info.dli_fname;
	if (!strncmp(file, "libcuda.so", 10))
		snprintf(text, sizeof texts[0], "driver+%#lx",
			 (long)((char *)address - (char *)info.dli_fbase));
	else if (info.dli_saddr == address)
		snprintf(text, sizeof texts[0], "ours %s", info.dli_sname);
	else
		snprintf(text, sizeof texts[0], "thunk");
	return text;
}

static void
look_up(void *library)
{
	for (size_t i = 0; i < LENGTH(exported); i++)
		printf("%s: %s, %s, %s, %s\n", exported[i].name, place(exported[i].direct),
		       place(dlsym(library, exported[i].name)),
		       place(dlsym(RTLD_DEFAULT, exported[i].name)),
		       place(dlsym(RTLD_NEXT, exported[i].name)));
	for (size_t i = 0; i < LENGTH(asked); i++)
		printf("%s: %s\n", asked[i], place(dlsym(library, asked[i])));
}

static void
ask_for(const char *name, int version, unsigned long long flag, proc_v1 *first, proc_v2 *second)
{
	int status = -1, rc1 = -1, rc2 = -1;
	void *one = NULL, *two = NULL;

	if (first)
		rc1 = first(name, &one, version, flag);
	if (second)
		rc2 = second(name, &two, version, flag, &status);
	printf("%s %d %llu: %d, %s, %d, %d, %s\n", name, version, flag, rc1, place(one), rc2,
	       status, place(two));
}

static void
ask(void *library)
{
	proc_v1 *first = (proc_v1 *)dlsym(library, "cuGetProcAddress");
	proc_v2 *second = (proc_v2 *)dlsym(library, "cuGetProcAddress_v2");

	for (size_t name = 0; name < LENGTH(asked); name++)
		for (size_t version = 0; version < LENGTH(versions); version++)
			for (size_t flag = 0; flag < LENGTH(flags); flag++)
				ask_for(asked[name], versions[version], flags[flag], first, second);
}

/* One place a call, shared between the processes. */
struct outcome {
	int started, code, error, returned;
};

static unsigned long long seed; /* 0: each argument is 0 */

/* Memory that START has allocated, if it has any. */
extern long probe_memory __attribute__((weak));

static long
argument(char kind, long scratch, unsigned long long *state)
{
	const long memory = &probe_memory ? probe_memory : scratch;
	const long pointers[] = { 0, scratch, scratch, scratch, memory, memory };
	const long streams[] = { 0, 1, 2, scratch, scratch, scratch };
	const long numbers[] = { 0, 1, 2, 3, -1, scratch };
	unsigned which;

	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	which = (*state >> 32) % LENGTH(pointers);
	return kind == 's' ? streams[which] : kind == 'n' ? numbers[which] : pointers[which];
}

/* The same in every process, like the address of the cleared memory that pointers lead to. */
static void
fill(long *arguments, size_t index)
{
	enum { BYTES = 1 << 16 };
	static void *scratch;
	unsigned long long state = (seed * 1009 + index) * 0x9e3779b97f4a7c15;
	const char *kind = called[index].kinds;

	if (!scratch)
		scratch = mmap((void *)0x200000000, BYTES, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	memset(scratch, 0, BYTES);
	for (size_t i = 0; i < ARGUMENTS; i++) {
		arguments[i] = seed ? argument(*kind, (long)scratch, &state) : 0;
		kind += *kind != 0;
	}
}

static void
keep(void)
{
	const char *file = getenv("PROBE_KEEPS");

	if (file && !dlopen(file, RTLD_LAZY | RTLD_NODELETE))
		exit(2);
}

static entry *
entry_of(void *library, const struct function *function)
{
	void *found = dlsym(library, function->name);

	return (entry *)(found ? found : function->direct);
}

static void
call_from(void *library, size_t first, bool is_started, struct outcome *outcomes,
	  volatile size_t *current)
{
	struct rlimit none = { 0 };
	int started = -1;

	setrlimit(RLIMIT_CORE, &none);
	alarm(120);
	keep();
	for (size_t i = first; i < LENGTH(called); i++) {
		struct outcome *outcome = &outcomes[i];
		entry *function;
		long a[ARGUMENTS];

		*current = i;
		/* Again where START makes a context, which the last call may have ended. A real
		 * driver without a device takes 20 ms for each START. */
		if (is_started && (i == first || &probe_memory))
			started = ((start *)START)(0);
		fill(a, i);
		outcome->started = started;
		function = entry_of(library, &called[i]);
		errno = 0;
		outcome->code = function(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9],
					 a[10], a[11]);
		outcome->error = errno;
		outcome->returned = 1;
	}
	_exit(0);
}

/* The processes that it takes, each from where the one before it ended. */
static void
call(void *library, const char *when, bool is_started, struct outcome *outcomes,
     volatile size_t *current)
{
	size_t next = 0;

	memset(outcomes, 0, LENGTH(called) * sizeof *outcomes);
	while (next < LENGTH(called)) {
		int status;
		pid_t pid = fork();

		if (pid == 0)
			call_from(library, next, is_started, outcomes, current);
		if (pid < 0 || waitpid(pid, &status, 0) != pid)
			exit(2);
		if (WIFEXITED(status) && outcomes[LENGTH(called) - 1].returned)
			break;
		printf("%s %s: ended with status %#x\n", called[*current].name, when, status);
		next = *current + 1;
	}
	for (size_t i = 0; i < LENGTH(called); i++)
		if (outcomes[i].returned)
			printf("%s %s: %d, code %d, errno %d\n", called[i].name, when,
			       outcomes[i].started, outcomes[i].code, outcomes[i].error);
}

static void
call_all(void *library)
{
	size_t bytes = LENGTH(called) * sizeof(struct outcome);
	char *shared = mmap(NULL, bytes + sizeof(size_t), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	setvbuf(stdout, NULL, _IONBF, 0);
	call(library, "before", false, (struct outcome *)shared, (size_t *)(shared + bytes));
	call(library, "after", true, (struct outcome *)shared, (size_t *)(shared + bytes));
}

int
main(int argc, char **argv)
{
	void *library = dlopen(FILE_NAME, RTLD_NOW);
	const char *mode = argc > 1 ? argv[1] : "";

	seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 0;

	if (!library)
		return 2;
	if (!strcmp(mode, "lookup"))
		look_up(library);
	else if (!strcmp(mode, "proc"))
		ask(library);
	else if (!strcmp(mode, "call"))
		call_all(library);
	else {
		keep();
		printf("%d\n", ((start *)START)(0));
	}
	return 0;
}
