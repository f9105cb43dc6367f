/* SPDX-License-Identifier: MIT */
/*
 * Bodies: external semaphores, of the kind that counts (timeline). One is a word of page-locked
 * host memory that the context current at its import owns: a signal writes it, a wait waits until
 * it is not less. Imports of the same file share one word. Nobody outside the process signals or
 * waits.
 */
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/sim/bodies.h"
#include "tests/sim/call.h"
#include "tests/sim/copies.h"

struct semaphore {
	struct semaphore *next;
	uint64_t *word;
	dev_t device;
	ino_t inode; /* of the file it was imported from */
};

static struct semaphore *semaphores; /* all imported and not destroyed */
static pthread_mutex_t semaphores_lock = PTHREAD_MUTEX_INITIALIZER; /* around the list */

static int
word_take(struct semaphore *semaphore)
{
	void *word = NULL;
	int rc;

	for (const struct semaphore *at = semaphores; at && !word; at = at->next)
		if (at->device == semaphore->device && at->inode == semaphore->inode)
			word = at->word;
	rc = word ? 0 : sim_mem_host_alloc(sizeof(*semaphore->word), &word);
	semaphore->word = word;
	return rc;
}

int
simb_do_cuImportExternalSemaphore(CUexternalSemaphore *extSem_out,
				  const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *semHandleDesc)
{
	struct semaphore *semaphore;
	struct stat about;
	int rc;

	if (!extSem_out || !semHandleDesc || semHandleDesc->flags)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "no description, or flags");
	if (semHandleDesc->type != CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD)
		return simb_unbuilt("a semaphore of this type");
	if (fstat(semHandleDesc->handle.fd, &about))
		return simb_misuse(CUDA_ERROR_INVALID_HANDLE, "not an open file");
	semaphore = calloc(1, sizeof(*semaphore));
	if (!semaphore)
		return CUDA_ERROR_OUT_OF_MEMORY;
	semaphore->device = about.st_dev;
	semaphore->inode = about.st_ino;
	pthread_mutex_lock(&semaphores_lock);
	rc = word_take(semaphore);
	if (!rc) {
		semaphore->next = semaphores;
		semaphores = semaphore;
	}
	pthread_mutex_unlock(&semaphores_lock);
	if (rc) {
		free(semaphore);
		return rc;
	}
	close(semHandleDesc->handle.fd); /* it is the driver's now */
	*extSem_out = (CUexternalSemaphore)(void *)semaphore;
	return 0;
}

/* The word stays for waits under way, until its context goes. */
int
simb_do_cuDestroyExternalSemaphore(CUexternalSemaphore extSem)
{
	struct semaphore **link = &semaphores, *found;

	pthread_mutex_lock(&semaphores_lock);
	while (*link && *link != (struct semaphore *)(void *)extSem)
		link = &(*link)->next;
	found = *link;
	if (found)
		*link = found->next;
	pthread_mutex_unlock(&semaphores_lock);
	if (!found)
		return simb_misuse(CUDA_ERROR_INVALID_HANDLE, "not a semaphore");
	free(found);
	return 0;
}

/* NULL: there is none such. */
static uint64_t *
word_of(CUexternalSemaphore extSem)
{
	const struct semaphore *at;
	uint64_t *word;

	pthread_mutex_lock(&semaphores_lock);
	at = semaphores;
	while (at && at != (const struct semaphore *)(void *)extSem)
		at = at->next;
	word = at ? at->word : NULL;
	pthread_mutex_unlock(&semaphores_lock);
	if (!word)
		simb_misuse(CUDA_ERROR_INVALID_HANDLE, "not a semaphore");
	return word;
}

int
simb_semaphores_signal(const CUexternalSemaphore *list,
		       const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *params, unsigned n,
		       CUstream stream)
{
	int rc = 0;

	if (!n || !list || !params) {
		simb_misuse(CUDA_ERROR_INVALID_VALUE, "no semaphores");
		return CUDA_ERROR_INVALID_VALUE;
	}
	for (unsigned i = 0; !rc && i < n; i++) {
		uint64_t *word = word_of(list[i]);

		rc = word ? sim_stream_write_timeline(simb_stream(stream), (uintptr_t)word,
						      params[i].params.fence.value)
			  : CUDA_ERROR_INVALID_HANDLE;
	}
	return rc;
}

int
simb_semaphores_wait(const CUexternalSemaphore *list,
		     const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *params, unsigned n, CUstream stream)
{
	int rc = 0;

	if (!n || !list || !params) {
		simb_misuse(CUDA_ERROR_INVALID_VALUE, "no semaphores");
		return CUDA_ERROR_INVALID_VALUE;
	}
	for (unsigned i = 0; !rc && i < n; i++) {
		uint64_t *word = word_of(list[i]);

		rc = word ? sim_stream_wait_timeline(simb_stream(stream), (uintptr_t)word,
						     params[i].params.fence.value)
			  : CUDA_ERROR_INVALID_HANDLE;
	}
	return rc;
}
