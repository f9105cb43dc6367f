/* SPDX-License-Identifier: MIT */
/*
 * Runs the scripts of rendezvous.h with an insertion at every position, a process for each run:
 *
 *   order_rendezvous MS PACES VARIANTS SKIP [JOB]
 *
 * MS is how long a run may take; PACES how many ways of sleeping between the steps are tried;
 * VARIANTS which buffers and sizes: 1 to 3. Positions and scripts named in the file SKIP ("-":
 * none) are left out, and pairs with one of them. JOB, as printed, is the only one to run. Pairs of
 * positions are tried for scripts that have at most PAIRS positions.
 *
 * Prints a line for each run that did not end well: "hang" or "died", the job, its pace and its
 * variant; its position is not tried again. The last line is "runs N hang N died N".
 */
#include "tests/process/order/rendezvous.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PARALLEL = 24, PAIRS = 11, NAME_MAX_BYTES = 160, BAD_MAX = 4000 };

struct running {
	pid_t pid; /* 0: free */
	uint64_t since_ms;
	struct job job;
};

static struct running running[PARALLEL];
static uint64_t limit_ms;
static unsigned n_paces, n_variants, n_runs, n_hang, n_died, n_bad;
static char bad[BAD_MAX][NAME_MAX_BYTES]; /* jobs that did not end well */
static char *skip; /* the file's text, with a newline before and after each line */
static const char *only;

static uint64_t
now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* Its script and its insertions: what decides whether it ends natively. */
static const char *
job_name(const struct job *job, char name[NAME_MAX_BYTES])
{
	int n = snprintf(name, NAME_MAX_BYTES, "%s/", job->script->name);

	for (unsigned i = 0; i < job->n; i++)
		n += snprintf(name + n, (size_t)(NAME_MAX_BYTES - n), "%s%u.%u", i ? "+" : "",
			      job->where[i].thread, job->where[i].at);
	return name;
}

static void
tell(const char *what, const struct job *job)
{
	char name[NAME_MAX_BYTES];

	job_name(job, name);
	printf("%s %s pace %u buffer %u %s size\n", what, name, job->pace, job->buffer,
	       job->other_size ? "other" : "same");
	fflush(stdout);
	if (n_bad < BAD_MAX)
		strcpy(bad[n_bad++], name);
}

/* The whole group: a job may have forked. */
static void
end(struct running *one, int status, int late)
{
	if (late) {
		n_hang++;
		tell("hang", &one->job);
	} else if (status) {
		n_died++;
		tell("died", &one->job);
	}
	kill(-one->pid, SIGKILL);
	if (late)
		waitpid(one->pid, NULL, 0);
	one->pid = 0;
}

/* Looks after what runs, once. */
static void
look(void)
{
	uint64_t now = now_ms();
	int status;

	for (struct running *one = running; one < running + PARALLEL; one++) {
		if (!one->pid)
			continue;
		if (waitpid(one->pid, &status, WNOHANG) == one->pid)
			end(one, status, 0);
		else if (now - one->since_ms > limit_ms)
			end(one, 0, 1);
	}
}

static struct running *
free_place(void)
{
	for (;;) {
		for (struct running *one = running; one < running + PARALLEL; one++)
			if (!one->pid)
				return one;
		usleep(300);
		look();
	}
}

static int
known_bad(const struct job *job)
{
	char name[NAME_MAX_BYTES], line[NAME_MAX_BYTES + 2];

	job_name(job, name);
	for (unsigned i = 0; i < n_bad; i++)
		if (!strcmp(bad[i], name))
			return 1;
	snprintf(line, sizeof(line), "\n%s\n", name);
	if (skip && strstr(skip, line))
		return 1;
	snprintf(line, sizeof(line), "\n%s\n", job->script->name);
	return skip && strstr(skip, line);
}

static int
left_out(const struct job *job)
{
	char name[NAME_MAX_BYTES];

	if (only)
		return strcmp(only, job_name(job, name)) != 0;
	for (unsigned i = 0; job->n > 1 && i < job->n; i++) {
		struct job one = *job;

		one.n = 1;
		one.where[0] = job->where[i];
		if (known_bad(&one))
			return 1;
	}
	return known_bad(job);
}

static void
start(const struct job *job)
{
	struct running *one;

	if (left_out(job))
		return;
	n_runs++;
	one = free_place();
	one->job = *job;
	one->since_ms = now_ms();
	one->pid = fork();
	if (one->pid < 0) {
		perror("fork");
		exit(3);
	}
	if (!one->pid) {
		setpgid(0, 0);
		job_run(&one->job);
	}
	setpgid(one->pid, one->pid);
}

static unsigned
positions(const struct script *script)
{
	unsigned n = 0;

	for (unsigned t = 0; script_steps(script, t); t++)
		n += script_steps(script, t) + 1;
	return n;
}

/* The n-th position, counted over all threads. */
static void
place(struct job *job, unsigned which, unsigned n)
{
	unsigned t = 0;

	while (n > script_steps(job->script, t))
		n -= script_steps(job->script, t++) + 1;
	job->where[which].thread = t;
	job->where[which].at = n;
}

static void
singles_run(struct job *job, unsigned n)
{
	job->n = 1;
	for (unsigned i = 0; i < n; i++) {
		place(job, 0, i);
		for (unsigned v = 0; v < n_variants; v++) {
			job->buffer = v == 2;
			job->other_size = v == 1;
			start(job);
		}
	}
}

static void
pairs_run(struct job *job, unsigned n)
{
	job->n = 2;
	job->buffer = 0;
	job->other_size = false;
	for (unsigned i = 0; i < n; i++) {
		for (unsigned j = i; j < n; j++) {
			place(job, 0, i);
			place(job, 1, j);
			start(job);
		}
	}
}

/* Waits for all that runs: what follows leaves out what did not end well. */
static void
settle(void)
{
	for (int i = 0; i < PARALLEL; i++) {
		while (running[i].pid) {
			usleep(300);
			look();
		}
	}
}

static void
all_run(void (*run)(struct job *, unsigned), unsigned max)
{
	struct job job = { 0 };

	for (job.pace = 0; job.pace < n_paces; job.pace++) {
		for (job.script = scripts; job.script->name; job.script++)
			if (positions(job.script) <= max)
				run(&job, positions(job.script));
		settle();
	}
}

static void
skip_read(const char *path)
{
	FILE *file = strcmp(path, "-") ? fopen(path, "r") : NULL;
	size_t n;

	if (!file)
		return;
	skip = calloc(1, 1 << 20);
	n = skip ? fread(skip + 1, 1, (1 << 20) - 3, file) : 0;
	if (!n)
		exit(3);
	skip[0] = '\n';
	fclose(file);
}

int
main(int argc, char **argv)
{
	if (argc < 5)
		return 2;
	limit_ms = strtoull(argv[1], NULL, 10);
	n_paces = (unsigned)strtoul(argv[2], NULL, 10);
	n_variants = (unsigned)strtoul(argv[3], NULL, 10);
	skip_read(argv[4]);
	only = argc > 5 ? argv[5] : NULL;
	all_run(singles_run, ~0u);
	all_run(pairs_run, PAIRS);
	printf("runs %u hang %u died %u\n", n_runs, n_hang, n_died);
	return 0;
}
