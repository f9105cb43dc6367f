/* SPDX-License-Identifier: MIT */
/*
 * What the engine's files share. All of it is guarded by sim_g.lock unless a field says otherwise;
 * functions ending in _locked need it. Allocation failure of the engine's own metadata ends the
 * process with a line.
 */
#pragma once

#include <pthread.h>

#include "tests/sim/engine.h"

#define SIM_UNIT ((uint64_t)2 << 20)      /* grain of capacity and of address ranges, bytes */
#define SIM_SMALL_MAX ((uint64_t)1 << 20) /* largest request cut from a chunk, bytes */
#define SIM_GRAIN ((uint64_t)512)         /* grain inside a chunk, bytes */
#define SIM_SLOTS (SIM_UNIT / SIM_GRAIN)

/* ------------------------------------------------------------ base.c --- */
void *sim_xcalloc(size_t n, size_t size);
void *sim_xrealloc(void *old, size_t n, size_t size);
_Noreturn void sim_die(const char *what);

/* A table of handles: fixed addresses, last freed first used.
 * Every element begins with struct sim_handle. */
enum sim_life {
	SIM_DEAD,
	SIM_LIVE,
	SIM_ZOMBIE, /* its context is gone; the program may still destroy it */
};

struct sim_handle {
	enum sim_life life;
	struct sim_handle *next_free;
};

struct sim_slab {
	char *base;               /* reserved range */
	size_t size;              /* of an element, bytes */
	size_t n_used, n_max;     /* elements ever handed out; limit */
	struct sim_handle *freed; /* list */
};

int sim_slab_open(struct sim_slab *slab, size_t size, size_t n_max);
void sim_slab_close(struct sim_slab *slab);
/* A zeroed element in state LIVE. NULL: full. */
void *sim_slab_get(struct sim_slab *slab);
void sim_slab_put(struct sim_slab *slab, void *element);
/* The element if `handle` is one and not dead; else NULL. */
void *sim_slab_find(const struct sim_slab *slab, const void *handle);

/* -------------------------------------------------------------- vc.c --- */
struct sim_vc {
	uint32_t n, cap; /* components present, allocated */
	uint64_t *at;    /* last count known of each component */
};

void sim_vc_join(struct sim_vc *to, const struct sim_vc *from);
void sim_vc_set(struct sim_vc *vc, uint32_t component, uint64_t count);
uint64_t sim_vc_get(const struct sim_vc *vc, uint32_t component);
void sim_vc_copy(struct sim_vc *to, const struct sim_vc *from);
void sim_vc_free(struct sim_vc *vc);
/* Components: one a stream. A retired one comes back when the host clock covers its last count. */
uint32_t sim_component_new_locked(void);
void sim_component_retire_locked(uint32_t component);
uint64_t sim_component_tick_locked(uint32_t component);
void sim_components_free_locked(void);

/* ------------------------------------------------------------ work --- */
enum sim_work_kind {
	SIM_WORK_MARK,   /* nothing: event record, wait, graph edge */
	SIM_WORK_COPY,   /* to, from */
	SIM_WORK_SET,    /* to; a: value, element_bytes */
	SIM_WORK_FILL,   /* a: ptr, n_words, value */
	SIM_WORK_CHECK,  /* a: ptr, n_words, value, errors_ptr */
	SIM_WORK_ALLOC,  /* a: ptr; only an access */
	SIM_WORK_FREE,   /* a: ptr, id of the memory */
	SIM_WORK_AWAIT,  /* a: ptr, value, enum sim_compare, bytes of the word (4 or 8) */
	SIM_WORK_HOST,   /* a: function, its argument, 1: a callback, then its stream argument */
	SIM_WORK_SIGNAL, /* a: ptr, value, enum sim_release, bytes of the word */
	SIM_WORK_FAULT,  /* a: the code that the context answers from then on */
};

/* What a signal says of what is before it. */
enum sim_release {
	SIM_RELEASE_NOTHING,
	SIM_RELEASE_ORDER,
	SIM_RELEASE_TIMELINE, /* and the word's values ascend */
};

struct sim_touch {
	uint64_t addr, n_bytes; /* from the first to the last byte */
	enum sim_access access;
	struct sim_area area; /* the rows in it that are touched; slices 0: all of it */
};

enum {
	SIM_WORK_TOUCHES = 2,
	SIM_WORK_ARGS = 4,
};

struct sim_work {
	enum sim_work_kind kind;
	const char *name; /* static text, for reports */
	uint64_t a[SIM_WORK_ARGS];
	struct sim_area to, from;
	struct sim_touch
		touch[SIM_WORK_TOUCHES]; /* tracked memory only, not pageable host memory */
	unsigned n_touches;
	uint64_t spin_ns;
	bool is_kernel;
	void *staged; /* malloc'd copy of a pageable source, or of what a programmatic launch
			 reads, row behind row, or NULL; owned by the operation */
};

/* ------------------------------------------------------------ area.c --- */
static inline bool
sim_area_empty(const struct sim_area *area)
{
	return !area->width || !area->rows || !area->slices;
}

/* Bytes from the first to the last of one that is not empty; false: more than an address range
 * holds, or rows or slices that overlap. */
bool sim_area_span(const struct sim_area *area, uint64_t *ret_n_bytes);
/* The same bytes in as few rows and slices as possible. */
struct sim_area sim_area_joined(const struct sim_area *area);
/* Of the same width, rows and slices. */
void sim_area_copy(const struct sim_area *to, const struct sim_area *from);
void sim_area_set(const struct sim_area *area, uint32_t value, uint64_t element_bytes);

/* -------------------------------------------------------------- op.c --- */
enum sim_op_state {
	SIM_OP_WAITING, /* n_waits > 0 or nobody has taken it */
	SIM_OP_RUNNING,
	SIM_OP_DONE,
};

struct sim_op {
	unsigned refs;
	enum sim_op_state state;
	uint64_t seq;
	struct sim_work work;
	struct sim_ctx *ctx; /* alive until every operation of it is done */
	uint64_t ctx_id, stream_id;
	int device;
	unsigned n_waits;     /* operations of deps not done */
	struct sim_op **deps; /* references; dropped when done */
	unsigned n_deps, cap_deps;
	struct sim_op **nexts; /* who waits for this; no references */
	unsigned n_nexts, cap_nexts;
	struct sim_op *prev, *next; /* pending list, by seq */
	struct sim_op *queue_next;  /* ready or running list of the device */
	uint64_t deadline_ns;       /* monotonic, while running with spin_ns */
	uint64_t done_ns;           /* engine time of completion */
	uint64_t visit;
	bool overlaps;         /* a programmatic launch (pdl.c) */
	struct sim_held *held; /* user objects of an executable destroyed before this was done */
	struct sim_vc teaches; /* what the host knows when it begins; host functions only */
};

struct sim_ops {
	struct sim_op **at; /* references */
	unsigned n, cap;
};

struct sim_op *sim_op_ref(struct sim_op *op);
void sim_op_unref_locked(struct sim_op *op);
/* A new operation of no stream, not yet pending; owns work->staged. One reference, the caller's. */
struct sim_op *sim_op_new_locked(struct sim_ctx *ctx, uint64_t stream_id,
				 const struct sim_work *work);
/* dep may be NULL or done. */
void sim_op_depend_locked(struct sim_op *op, struct sim_op *dep);
/* Makes it pending: it runs once its deps are done. */
void sim_op_start_locked(struct sim_op *op);
/* Bookkeeping of the end; wakes those who wait. */
void sim_op_complete_locked(struct sim_op *op);
void sim_ops_add(struct sim_ops *list, struct sim_op *op);
void sim_ops_clear_locked(struct sim_ops *list);

/* ---------------------------------------------------------- executor.c --- */
struct sim_worker {
	pthread_t thread;
	bool started, stop;
	pthread_cond_t wake;
	struct sim_op *ready, **ready_tail; /* FIFO */
	struct sim_op *running;             /* with a deadline, unordered */
	struct sim_op *awaiting;            /* waits for a value not there yet, unordered */
};

int sim_worker_start_locked(int device);
void sim_workers_stop(void);
void sim_worker_push_locked(struct sim_op *op);
/* Releases the lock while it waits (or, manual clock, runs what is needed). */
void sim_ops_wait_locked(struct sim_ops *list);
bool sim_ops_done(const struct sim_ops *list);
uint64_t sim_now_ns(void);

/* Runs one operation whose deps are done. Releases the lock on the way. */
void sim_op_run_locked(struct sim_op *op);
/* Waits up to ms for an operation to complete, a pin to go, or the like. */
void sim_done_wait_locked(unsigned ms);

/* Memory effect of a piece of work; called without the lock, memory pinned. */
void sim_work_run(const struct sim_work *work);

/* -------------------------------------------------------- hostfunc.c --- */
/* Begins a host function whose turn it is; it completes when the function has returned. */
void sim_host_begin_locked(struct sim_op *op);
/* Ends the thread. */
void sim_host_stop(void);
/* 1 when the thread of host functions runs, else 0. */
unsigned sim_host_threads_locked(void);

/* ---------------------------------------------------------- manual.c --- */
/* Manual clock: runs what `list` needs until all of it is done. */
void sim_manual_wait_locked(struct sim_ops *list);
/* The host asks about `op`: runs what it needs if no device has to run for it, which is so for
 * marks, and for waits whose value is there. */
void sim_manual_look_locked(struct sim_op *op);
/* A query was answered "not ready": of many in a row all that can run is run. */
void sim_manual_asked_locked(void);

/* ----------------------------------------------------------- await.c --- */
/* What a wait for a value would see now. True also for memory that is not there, so that the
 * operation runs and fails as any other. */
bool sim_await_met_locked(const struct sim_op *op);
/* Whether a word that holds `have` satisfies the wait. */
bool sim_await_holds(const struct sim_work *work, uint64_t have);
/* The operation, once its deps are done, stands still until somebody writes a word. */
static inline bool
sim_op_awaits(const struct sim_op *op)
{
	return op->work.kind == SIM_WORK_AWAIT && !op->n_waits;
}

/* -------------------------------------------------------- deadlock.c --- */
/* A wait of the host, watched for progress. */
struct sim_stall {
	uint64_t n_done;   /* sim_g.n_done when it last changed */
	uint64_t since_ms; /* monotonic, of that; 0: not yet looked */
	bool told;
};

/* Called at every turn of a wait of the host. Reports, and ends the process where asked for. */
void sim_stall_look_locked(struct sim_stall *stall);

/* ----------------------------------------------------------- order.c --- */
/* Called for each operation before it is judged; its clock gains what signals teach. */
void sim_order_submit_locked(const struct sim_op *op, uint32_t component, uint64_t count,
			     struct sim_vc *vc);
/* A wait for a value is over. */
void sim_order_done_locked(const struct sim_op *op);
/* 0, or the number of a wait without a signal so far, other than op itself, that is before
 * everything with this clock. */
uint64_t sim_order_open_locked(const struct sim_op *op, const struct sim_vc *vc);
bool sim_order_is_open_locked(uint64_t number);
/* Memory is given back: the words in it are no flags any more. */
void sim_order_forget_locked(uint64_t addr, uint64_t n_bytes);
void sim_order_free_locked(void);

/* ------------------------------------------------------------ oracle.c --- */
/* Judges one operation's touches and remembers them.
 * vc: clock of the operation, its own tick included. */
void sim_oracle_touch_locked(const struct sim_op *op, uint32_t component, uint64_t count,
			     const struct sim_vc *vc);
/* Who is no stream touches the bytes now, ordered by the host's clock only. */
void sim_oracle_accessor_locked(const char *name, uint64_t addr, uint64_t n_bytes, bool writes);
void sim_oracle_forget_locked(uint64_t addr, uint64_t n_bytes);
void sim_oracle_free_locked(void);

struct sim_mem;
struct sim_phys;
struct sim_range;
struct sim_pool;
struct sim_place;
struct sim_graph_mem;

/* -------------------------------------------------------- contexts --- */
struct sim_ctx {
	struct sim_handle handle;
	uint64_t id;
	int device;
	unsigned flags;
	bool primary;
	unsigned retains; /* primary only */
	/* A green context has streams, a default stream and a gate of its own (green.c); memory,
	   events, errors and peers are those of its root. */
	struct sim_ctx *root;       /* itself, or a green one's primary context */
	struct sim_ctx *greens;     /* of a primary one: those that live */
	struct sim_ctx *next_green; /* in root->greens */
	uint64_t *peers;            /* ids of contexts whose memory its kernels may touch */
	unsigned n_peers;
	int sticky; /* 0, or the code that calls which need it answer from now on; no work runs */
	struct sim_stream *streams; /* all of it, default streams included */
	struct sim_stream *legacy;
	struct sim_event *events;
	struct sim_op *gate; /* last sim_ctx_wait_event: everything later waits for it */
	struct sim_vc gate_vc;
	struct sim_ops
		orphans[2]; /* last operations of destroyed streams: non-blocking, blocking */
	struct sim_vc orphan_vc[2];
};

/* Top of the calling thread's stack, alive; 201 or 709. */
int sim_ctx_current_locked(struct sim_ctx **ret_ctx);
/* The same for a call that needs it to work; or what a fault has left there. */
int sim_ctx_usable_locked(struct sim_ctx **ret_ctx);
/* A handle, NULL meaning the current one. */
int sim_ctx_resolve_locked(CUcontext handle, struct sim_ctx **ret_ctx);
static inline bool
sim_ctx_is_green(const struct sim_ctx *ctx)
{
	return ctx->root != ctx;
}
/* Begins a life in a free slot. */
int sim_ctx_init_locked(struct sim_ctx *ctx, int device, unsigned flags);
int sim_primary_retain_locked(int device, struct sim_ctx **ret_ctx);
int sim_primary_release_locked(int device);
/* Its streams are detached; what they have not finished is waited for as work of its root. */
void sim_green_kill_locked(struct sim_ctx *ctx);
/* A new operation of one of its streams comes after what the whole context was told to wait for. */
void sim_ctx_gates_locked(const struct sim_ctx *ctx, struct sim_op *op, struct sim_vc *vc);
/* Whether the operation may touch what it does of that memory. */
bool sim_peer_reaches_locked(const struct sim_op *op, const struct sim_mem *mem,
			     const struct sim_touch *touch);
/* What is the last of everything submitted to it, and its clock. Adds to both. `but_thread`: unless
 * it is 0, without per-thread streams of other threads. */
void sim_ctx_targets_locked(struct sim_ctx *ctx, uint64_t but_thread, struct sim_ops *ops,
			    struct sim_vc *vc);
/* Waits for all of it and teaches the host clock. */
void sim_ctx_drain_locked(struct sim_ctx *ctx);
void sim_ctx_kill_locked(struct sim_ctx *ctx);

/* --------------------------------------------------------- streams --- */
struct sim_stream {
	struct sim_handle handle;
	uint64_t id;
	struct sim_ctx *ctx;
	struct sim_stream *next; /* in ctx->streams */
	bool is_legacy, blocking;
	bool detached;   /* a zombie whose green context was destroyed */
	bool early;      /* the operation being submitted does not wait for the legacy stream */
	uint64_t thread; /* of a per-thread stream; else 0 */
	unsigned flags;
	int priority;
	struct sim_op *last; /* last operation submitted, or NULL */
	struct sim_vc vc;    /* its clock */
	uint32_t component;
	struct sim_capture *capture; /* it takes part in, or NULL */
	unsigned *frontier;          /* nodes the next captured one depends on */
	unsigned n_frontier;
	unsigned chain; /* number of this stream in the capture */
	/* While the last operation is a kernel: what the first of the run of programmatic launches
	   that it may belong to waited for (pdl.c). */
	struct sim_ops base;
	struct sim_vc base_vc;
	bool has_base;
	CUgraphNode *shown; /* the frontier as last handed to the program */
};

struct sim_stream *sim_stream_new_locked(struct sim_ctx *ctx, unsigned flags, int priority);
/* Removes it from its context; its outstanding work becomes the context's orphans. */
void sim_stream_drop_locked(struct sim_stream *stream);
/* Of a usable context; else what a fault has left there. */
int sim_stream_resolve_locked(CUstream handle, struct sim_stream **ret_stream);
/* Of any living one. */
int sim_stream_find_locked(CUstream handle, struct sim_stream **ret_stream);
/* What a synchronisation of it waits for, and the clock it teaches. Adds to both. */
void sim_stream_targets_locked(struct sim_stream *stream, struct sim_ops *ops, struct sim_vc *vc);
/*
 * Submits, or records when the stream captures. Takes work->staged over, also on failure. ret_op
 * may be NULL; otherwise a reference, NULL when recorded. `after`/`after_vc`: one more thing to
 * wait for, may be NULL.
 */
int sim_submit_locked(struct sim_stream *stream, const struct sim_work *work, struct sim_op *after,
		      const struct sim_vc *after_vc, struct sim_op **ret_op);
/* submit, then wait for it and teach the host clock. */
int sim_submit_wait_locked(struct sim_stream *stream, const struct sim_work *work);
/* Waits for ops and teaches vc; empties both. */
void sim_host_wait_locked(struct sim_ops *ops, struct sim_vc *vc);
/* The two halves of a submission: what a new operation of the stream waits for by the rules of
 * streams (clock joined into stream->vc); and making it the stream's last one, judged and pending.
 * Between them more may be added to both. */
void sim_stream_inherit_locked(struct sim_stream *stream, struct sim_op *op);
/* The clock that its next operation will have, but for its own tick. */
void sim_stream_clock_locked(struct sim_stream *stream, struct sim_vc *ret_vc);
void sim_stream_commit_locked(struct sim_stream *stream, struct sim_op *op);

/* ---------------------------------------------------------- events --- */
struct sim_event {
	struct sim_handle handle;
	struct sim_ctx *ctx;
	struct sim_event *prev, *next; /* in ctx->events */
	unsigned flags;
	struct sim_op *op;   /* last record, or NULL */
	struct sim_vc vc;    /* what it covers */
	uint64_t capture_id; /* last recorded in that capture, or 0 */
	unsigned *nodes;     /* then: what it covers there */
	unsigned n_nodes;
};

/* Of a usable context; else what a fault has left there. */
int sim_event_resolve_locked(CUevent handle, struct sim_event **ret_event);
void sim_event_clear_locked(struct sim_event *event);
/* Death of its context. */
void sim_event_orphan_locked(struct sim_event *event);

/* --------------------------------------------------------- memory --- */
struct sim_mem {
	struct sim_mem_info info;
	uint64_t n_taken;      /* bytes of address range it holds: grains or units */
	bool large;            /* whole units; else cut from a chunk */
	bool freeing;          /* a free of it is under way or queued */
	bool waited;           /* a thread is about to release it: nobody else may */
	bool gone;             /* its stream-ordered free has run: nobody may use it any more */
	uint64_t left_in;      /* the stream of that free */
	unsigned pins;         /* operations running on it */
	struct sim_ipc opened; /* SIM_MEM_OPENED: what it is, how often opened, where it is here */
	unsigned opens;
	uint64_t original;            /* address, or 0: another process's */
	struct sim_ctx *ctx;          /* NULL: of a pool, or a graph's */
	struct sim_mem *prev, *next;  /* all of the engine */
	struct sim_pool *pool;        /* it is of, or NULL */
	struct sim_place *born;       /* where it came to its owner; memory of pools */
	struct sim_mem *next_leaving; /* in sim_g.leaving */
	struct sim_graph_mem *graph;  /* of a graph's allocation node, or NULL (pool_graph.c) */
};

/* A 2 MiB unit of small blocks. */
struct sim_chunk {
	struct sim_chunk *next;        /* of the device */
	uint64_t base;                 /* address */
	unsigned n_free;               /* slots */
	unsigned cursor;               /* next slot to try, so that freed ones come back late */
	struct sim_mem *at[SIM_SLOTS]; /* owner of each slot */
};

struct sim_unit {
	struct sim_mem *mem;     /* large allocation, or */
	struct sim_chunk *chunk; /* chunk, or */
	struct sim_pool *pool;   /* of whose reserve it is, or */
	struct sim_phys *phys;   /* physical memory; all NULL: free */
};

struct sim_space {
	uint64_t base;       /* address of the reservation, on a unit boundary */
	uint64_t map, n_map; /* what mmap gave, bytes */
	int fd;              /* of the file that it is, or -1 */
	uint64_t n_units;    /* in the range */
	uint64_t cap_units;  /* may be in use at once */
	uint64_t used, peak; /* units */
	uint64_t cursor;     /* unit to try next */
	struct sim_unit *unit;
	struct sim_chunk *chunks;
};

/* fd: see sim_ipc_file(). */
int sim_space_open(struct sim_space *space, uint64_t cap_bytes, int fd);
void sim_space_close(struct sim_space *space);
/* Takes address range and capacity for mem->info.n_bytes and sets base; OUT_OF_MEMORY.
 * Contents are undefined. */
int sim_space_take_locked(struct sim_space *space, struct sim_mem *mem);
void sim_space_give_locked(struct sim_space *space, struct sim_mem *mem);
struct sim_mem *sim_space_find(const struct sim_space *space, uint64_t addr);
/* Whole units for a pool, and back. */
int sim_space_take_units_locked(struct sim_space *space, struct sim_pool *pool, uint64_t n,
				uint64_t *ret_addr);
void sim_space_give_units_locked(struct sim_space *space, uint64_t addr, uint64_t n);
/* Address range without memory, as mem->info.n_bytes wants it; and memory for it. */
int sim_space_reserve_locked(struct sim_space *space, struct sim_mem *mem);
void sim_space_unreserve_locked(struct sim_space *space, const struct sim_mem *mem);
int sim_space_map_locked(struct sim_space *space, const struct sim_mem *mem);
void sim_space_unmap_locked(struct sim_space *space, struct sim_mem *mem);

/* The live memory that holds addr (device or page-locked host), or NULL. */
struct sim_mem *sim_mem_find_locked(uint64_t addr);
/* In some device's reserved range, live or not. */
bool sim_mem_is_device_range(uint64_t addr);
/* Whole of [addr, addr + n_bytes) inside one live piece. */
struct sim_mem *sim_mem_hold_locked(uint64_t addr, uint64_t n_bytes);
/* Gives it back now. Waits for pins. */
void sim_mem_release_locked(struct sim_mem *mem);
/* Ordinary memory that was freed in stream order: released when the stream (0: any of the context)
 * has been synchronised after the free. */
void sim_mem_leave_locked(struct sim_mem *mem, uint64_t stream_id);
void sim_mem_arrive_locked(const struct sim_ctx *ctx, uint64_t stream_id);
void sim_mem_kill_ctx_locked(struct sim_ctx *ctx);
int sim_mem_new_locked(struct sim_ctx *ctx, size_t n_bytes, enum sim_mem_kind kind,
		       struct sim_mem **ret_mem);

/* A new record enters the list of all, and leaves it (and is freed). */
void sim_mem_enter_locked(struct sim_mem *mem);
void sim_mem_forget_locked(struct sim_mem *mem);

/* A record of memory mapped at `addr`. */
struct sim_mem *sim_mem_opened_locked(struct sim_ctx *ctx, uint64_t addr, uint64_t n_bytes);

/* -------------------------------------------------- pools (pool.h) --- */
struct sim_mem *sim_pool_mem_at(const struct sim_pool *pool, uint64_t addr);
int sim_pools_open_locked(void);
void sim_pools_close_locked(void);
/* The host has synchronised: pools give back what is above their thresholds. */
void sim_pools_synchronised_locked(void);
/* A stream-ordered free runs. */
void sim_free_run_locked(const struct sim_op *op);
/* cuMemFree of memory of a pool or a graph. */
int sim_pool_host_free_locked(struct sim_mem *mem);
/* Work of that kind begins, or is to touch the memory: whether it is there. */
void sim_graph_alloc_run_locked(const struct sim_op *op);
bool sim_graph_mem_present_locked(const struct sim_mem *mem);

/* ------------------------------------------------------------- ipc.c --- */
/* The file that is the device's address range, or, counted on from SIM_DEVICES_MAX, its physical
 * memory with handles; -1: none. Of another process: to read and write, if there is a folder. */
int sim_ipc_file(int device);
int sim_ipc_open_file(int pid, int device);
void sim_ipc_describe_locked(const struct sim_mem *mem, struct sim_ipc *ret_ipc);
/* Maps what it says, beside what may be mapped of it already. */
int sim_ipc_map_locked(struct sim_ctx *ctx, const struct sim_ipc *ipc, struct sim_mem **ret_mem);
/* Where the byte is known to the oracle: aliases of this process's memory are that memory. */
uint64_t sim_ipc_original_locked(uint64_t addr);

/* ---------------------------------------------------- work of nodes --- */
/* false: no such kernel, the words do not fit an address range, or an address is not aligned. */
bool sim_kernel_work(enum sim_kernel kernel, const uint64_t *args, struct sim_work *work);
/* Check what they name. A pageable side is read or written when the node runs. */
int sim_copy_work_locked(const struct sim_area *dst, const struct sim_area *src,
			 struct sim_work *work);
int sim_set_work_locked(const struct sim_area *dst, uint32_t value, unsigned element_bytes,
			struct sim_work *work);

/* -------------------------------------------------------------- pdl.c --- */
/* `op` is about to become the stream's last one, its own tick not yet in the clock. */
void sim_pdl_note_locked(struct sim_stream *stream, const struct sim_op *op);
void sim_pdl_clear_locked(struct sim_stream *stream);

#include "tests/sim/engine/graph.h"
#include "tests/sim/engine/mapped.h"

/* ------------------------------------------------------------ state --- */
struct sim_device {
	struct sim_space space;
	struct sim_space pages; /* its physical memory with handles, once there is any (phys.c) */
	struct sim_worker worker;
	struct sim_op *last;     /* submitted to a stream of it, where it has one queue */
	struct sim_ctx *primary; /* slot, LIVE or DEAD */
	unsigned primary_flags;
	uint64_t graph_bytes[4]; /* by enum sim_graph_memory_attribute */
};

struct sim_global {
	pthread_mutex_t lock;
	bool on;
	struct sim_config config;
	struct sim_device device[SIM_DEVICES_MAX];
	struct sim_slab ctxs, streams, events, graphs, execs, objects, pools, physes;
	struct sim_space host_space; /* of pools in host memory, once there is one */
	pthread_cond_t done;         /* some operation completed, or a pin went */
	struct sim_op *first, *last; /* pending, by seq */
	uint64_t n_pending;
	uint64_t n_done;    /* operations completed, to see progress */
	uint64_t manual_ns; /* engine time with a manual clock */
	unsigned n_asked;   /* queries in vain since anything was submitted or completed */
	uint64_t visits;
	struct sim_vc host; /* the host's clock */
	struct sim_mem *mems;
	struct sim_mem *leaving;  /* of pools: freed in a stream that has not got there */
	bool clocks;              /* they are kept although the oracle is off: pools need them */
	unsigned n_opened;        /* SIM_MEM_OPENED */
	struct sim_range *ranges; /* reservations */
	struct sim_mem **pinned;  /* host and opened memory, by address */
	size_t n_pinned, cap_pinned;
	struct sim_capture *captures;
	uint64_t races;
	uint64_t generation; /* of sim_start */
	/* Counters that survive sim_stop, so that nothing is ever mistaken for something older. */
	uint64_t seq, next_ctx, next_stream, next_mem, next_capture, next_pool;
};

extern struct sim_global sim_g;

void sim_lock(void);
void sim_unlock(void);
/* Number of the calling thread, from 1. */
uint64_t sim_thread_id(void);
/* Tells config.on_misuse; returns code. */
int sim_misuse_locked(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
static inline bool
sim_oracle_on(void)
{
	return sim_g.config.races != SIM_RACES_OFF;
}
static inline bool
sim_clocks_on(void)
{
	return sim_oracle_on() || sim_g.clocks;
}
