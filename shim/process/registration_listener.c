/* SPDX-License-Identifier: MIT */
/*
 * Memory that the program registers with a network or storage library, or reads and writes through
 * one: the accessor is no stream, so the memory is settled before the library's function is called,
 * and its address range is handed out finished only from then on (allocator/order/order.h,
 * ca_register).
 *
 * The call itself goes on as it is, whatever the memory: host memory is nothing of ours. A call
 * from inside the driver is the driver's business.
 */
#include "shim/process/registration_listener.h"

#include <errno.h>
#include <stddef.h>

#include "allocator/order/order.h"
#include "shim/bind/links.h"
#include "shim/bind/object.h"
#include "shim/bind/registrations.h"
#include "shim/pinned/pinned.h"
#include "shim/process/lifecycle.h"
#include "shim/state/finished_only.h"

enum how {
	FIRST_TWO,     /* address, bytes: arguments 0 and 1 */
	SECOND_TWO,    /* 1 and 2 */
	FILE_IO,       /* base, bytes and the offset in memory: 1, 2, 4 */
	FILE_IO_ASYNC, /* the same, the last two by pointer */
	FILE_VECTOR,   /* struct vector[]: 1; how many: 2 */
	FILE_BATCH,    /* how many: 1; struct batch_entry[]: 2 */
	VERBS_EX,      /* struct verbs_attributes *: 1 */
	VERBS_AGAIN,   /* flags: 1; address, bytes: 3 and 4 */
	DEVX_IN,       /* struct devx_in *: 1 */
	OPENS,         /* none: memory will be registered */
};

static const unsigned char hows[CA_REGISTRATION_COUNT] = {
#define CA_REGISTRATION(name, how) [CA_REGISTRATION_##name] = how,
#include "shim/bind/registrations.def"
};

/* CUfileIOVec_t */
struct vector {
	uint64_t base;
	size_t bytes;
};

/* CUfileIOParams_t */
struct batch_entry {
	int mode; /* 1: as below */
	uint64_t base;
	int64_t file_offset, offset;
	size_t bytes;
	void *file;
	int operation;
	void *cookie;
};
_Static_assert(sizeof(struct batch_entry) == 64, "CUfileIOParams_t");

/* struct ibv_mr_init_attr, as far as it is needed */
struct verbs_attributes {
	size_t bytes;
	int access;
	uint64_t mask; /* 2: there is an address */
	uint64_t iova;
	uint64_t address;
};

/* struct mlx5dv_devx_umem_in, as far as it is needed */
struct devx_in {
	uint64_t address;
	size_t bytes;
};

enum { BATCH = 1, VERBS_HAS_ADDRESS = 2, VERBS_CHANGES_TRANSLATION = 1 };

static const void *
pointer(uint64_t argument)
{
	return (const void *)(uintptr_t)argument; // NOLINT: it is one
}

static void
share(struct ca_process *process, uint64_t address, uint64_t bytes)
{
	if (!address)
		return;
	(void)ca_register(process->heap, address, bytes);
	ca_pinned_expose(address, bytes);
}

static void
share_vector(struct ca_process *process, const struct vector *vector, uint64_t n)
{
	for (uint64_t i = 0; vector && i < n; i++)
		share(process, vector[i].base, vector[i].bytes);
}

static void
share_batch(struct ca_process *process, const struct batch_entry *entry, unsigned n)
{
	for (unsigned i = 0; entry && i < n; i++)
		if (entry[i].mode == BATCH)
			share(process, entry[i].base + (uint64_t)entry[i].offset, entry[i].bytes);
}

static void
share_async(struct ca_process *process, const uint64_t *a)
{
	const size_t *bytes = pointer(a[2]);
	const int64_t *offset = pointer(a[4]);

	/* both may change until the stream gets there: so all that lies behind the base, too */
	if (a[1] && bytes)
		share(process, a[1], *bytes + (offset ? (uint64_t)*offset : 0));
}

static void
share_structure(struct ca_process *process, enum how how, const void *structure)
{
	const struct verbs_attributes *verbs = structure;
	const struct devx_in *devx = structure;

	if (!structure)
		return;
	if (how == DEVX_IN)
		share(process, devx->address, devx->bytes);
	else if (verbs->mask & VERBS_HAS_ADDRESS)
		share(process, verbs->address, verbs->bytes);
}

static void
share_named(struct ca_process *process, enum how how, const uint64_t *a)
{
	switch (how) {
	case FIRST_TWO:
		share(process, a[0], a[1]);
		break;
	case SECOND_TWO:
		share(process, a[1], a[2]);
		break;
	case FILE_IO:
		share(process, a[1] ? a[1] + a[4] : 0, a[2]);
		break;
	case FILE_IO_ASYNC:
		share_async(process, a);
		break;
	case FILE_VECTOR:
		share_vector(process, pointer(a[1]), a[2]);
		break;
	case FILE_BATCH:
		share_batch(process, pointer(a[2]), (unsigned)a[1]);
		break;
	case VERBS_AGAIN:
		if (a[1] & VERBS_CHANGES_TRANSLATION)
			share(process, a[3], a[4]);
		break;
	case VERBS_EX:
	case DEVX_IN:
		share_structure(process, how, pointer(a[1]));
		break;
	case OPENS:
		ca_register_begins(process->heap);
		break;
	}
}

/* ---- what the loader side calls */

static void
called(enum ca_registration which, const uint64_t *arguments)
{
	struct ca_process *process = ca_inside ? NULL : ca_process();

	if (process && process->caches)
		share_named(process, (enum how)hows[which], arguments);
}

static void
missed(void)
{
	struct ca_process *process = ca_process();

	if (process)
		ca_fallback(process, NULL, CA_REASON_NETWORK);
}

static void
loaded(void)
{
	ca_links_follow(ca_object_generation());
}

static const struct ca_registration_listener listener = {
	.called = called,
	.missed = missed,
	.loaded = loaded,
};

void
ca_hook_register_start(struct ca_process *process)
{
	if (process->caches && ca_registration_set_callback(&listener))
		ca_fallback(process, NULL, CA_REASON_NETWORK);
}

void
ca_hook_register_look(struct ca_process *process, uint64_t generation)
{
	if (process && process->caches)
		ca_links_follow(generation);
}

void
ca_hook_register_after_fork_child(void)
{
	ca_registration_set_callback(NULL);
}
