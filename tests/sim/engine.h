/* SPDX-License-Identifier: MIT */
/*
 * The engine of the simulated driver: devices, contexts, memory, streams, events, kernels,
 * captures, and an oracle that tells when two operations race. It exports no cu* name; tests/sim's
 * bridge puts those on top.
 *
 * Conventions, unless a function says otherwise
 * - Returns a CUresult as int: 0 or the code that the native driver gives for the same mistake.
 * - `ret_*` is written only on success.
 * - Any thread may call anything at any time; one engine lock inside, never held while work runs.
 * - "Current context" is the top of the calling thread's own stack. None:
 * CUDA_ERROR_INVALID_CONTEXT (201); one that was destroyed or reset meanwhile:
 * CUDA_ERROR_CONTEXT_IS_DESTROYED (709).
 * - A stream argument may be NULL or CU_STREAM_LEGACY (legacy default stream of the current
 * context), CU_STREAM_PER_THREAD (the calling thread's default stream there), or a created stream.
 * The bridge turns NULL into CU_STREAM_PER_THREAD for the _ptsz and _ptds names.
 * - Sizes and offsets in bytes, times in nanoseconds unless the name says another unit.
 * - Handles are checked: NULL or dead ones give INVALID_HANDLE (streams, events, graphs) or
 * INVALID_CONTEXT; a stream or event whose context is gone gives CONTEXT_IS_DESTROYED. Handle
 * *values* come back after a destroy, as natively (last in, first out); context ids
 * (sim_ctx_get_id) never do.
 *
 * Time. Every submission becomes an operation with a list of operations it must wait for.
 * Clock "real": a worker thread per device runs what is ready; a kernel with spin_us is held until
 * its time is over without stopping the others, and its effect on memory happens at its end.
 * Clock "manual": nothing runs until a synchronising call needs it (then exactly that and what it
 * depends on, in submission order) or sim_step() says so. A query makes nothing run, but
 * of 512 in vain and in a row the last runs all that can run. Where that is a wait for a value,
 * what writes the word is needed, too, and then runs as far as the value takes, oldest first. A
 * missing order shows in the contents, and nothing depends on speed.
 *
 * Race oracle. Judged when an operation is submitted, so the verdict does not depend on timing.
 * Each stream is a component of a vector clock; an operation inherits the clocks of what it waits
 * for (stream order, event waits, context waits, legacy default rules, graph edges) and the host's
 * clock. Two operations that touch the same byte, one of them writing, and neither before the
 * other, are a race; atomic adds do not race with each other. At most one report a range touched.
 *
 * The host is ONE component shared by all threads: a synchronisation or a query that answered
 * "done", in any thread, orders what it covered before every later submission of every thread. For
 * testing an allocator under a program that is the right side to err on. Threads of the program
 * hand each other pointers through means we cannot see (mutexes, queues, atomics), so host clocks
 * per thread would accuse correct programs. What is lost are races between host threads that by
 * luck called in the right order. What is kept is everything an allocator can get wrong, because
 * reuse without waiting synchronises with nothing and hence teaches the host clock nothing; and it
 * is judged by the program's own operations, so an interposer that never calls sim_mem_free() is
 * seen as well.
 *
 * Only what the driver promises teaches: a pageable host-to-device copy, a device-to-device copy
 * and a set do not, even if they happen to be finished. sim_mem_free() waits for the context of the
 * memory and therefore orders. An unmarked end of work that nobody asked about orders nothing.
 *
 * Cost per operation: O(streams) for the clocks, O(log ranges + ranges touched) for the bytes.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shim/bind/cuda_abi.h"

/* ---------------------------------------------------------------- life --- */
enum {
	SIM_DEVICES_MAX = 16,
};

enum sim_clock {
	SIM_CLOCK_REAL,
	SIM_CLOCK_MANUAL,
};

enum sim_races {
	SIM_RACES_OFF,
	SIM_RACES_REPORT, /* print and count */
	SIM_RACES_ABORT,  /* print, then abort() */
};

/* Beliefs about all drivers that this one breaks (bits). */
enum sim_breaks {
	/* A record on an idle blocking stream comes before earlier work of the legacy stream. */
	SIM_BREAKS_LEGACY_RECORD = 1,
	/* A mark of a context leaves out the per-thread streams of other threads. */
	SIM_BREAKS_CONTEXT_RECORD = 2,
};

enum sim_access {
	SIM_READ,
	SIM_WRITE,
	SIM_ATOMIC,
};

/* One side of a race. */
struct sim_race_side {
	const char *name;       /* "sim_fill", "copy", "set", "alloc_async", "free_async" */
	uint64_t seq;           /* number of the submission, counted over the process, from 1 */
	uint64_t stream_id;     /* sim_stream_get_id() of its stream */
	uint64_t ctx_id;        /* sim_ctx_get_id() of its context */
	enum sim_access access; /* what it does to the bytes */
};

struct sim_race {
	struct sim_race_side before, now; /* `before` was submitted first */
	uint64_t addr;                    /* first byte both touch */
	uint64_t n_bytes;                 /* how many both touch from there on */
};

struct sim_config {
	int n_devices;      /* 1..SIM_DEVICES_MAX */
	uint64_t mem_bytes; /* capacity of each device; rounded down to 2 MiB */
	enum sim_clock clock;
	/* Manual clock: of so many queries in a row in vain the last runs all that can; 0: 512. */
	unsigned asked_max;
	enum sim_races races;
	bool ends_tell;    /* a context's end answers its sticky error */
	bool free_at_once; /* a free unmaps without waiting; for the oracle it writes the memory */
	unsigned breaks;   /* enum sim_breaks */
	bool one_queue;    /* what a stream is given runs behind all that its device was given */
	/*
	 * Both may be NULL; both are called with the engine's lock held, so they must not call the
	 * engine. They may abort. on_misuse: a call got an error that tells of a mistake in the
	 * program (bad pointer, dead handle, copy out of bounds), or a kernel touched memory that
	 * is not allocated (code 700). `what` is one line without newline. on_race: each race,
	 * before the engine prints it; when set, the engine does not print, and aborts (in ABORT
	 * mode) after it returned.
	 */
	void (*on_misuse)(void *arg, int code, const char *what);
	void (*on_race)(void *arg, const struct sim_race *race);
	/*
	 * Deadlocks (engine/deadlock.c). Reported on stderr, once a wait: those that are certain
	 * always; and if deadlock_ms is not 0, every wait of the host in which that long no
	 * operation completed. deadlock_abort: abort() after the report. on_deadlock may be NULL;
	 * called after the report with the lock held.
	 */
	unsigned deadlock_ms;
	bool deadlock_abort;
	/* NULL; a folder for files by which processes reach each other's memory; or "self": this
	 * process alone opens what it exports (engine/ipc.c). Must outlive the engine. */
	const char *ipc;
	void (*on_deadlock)(void *arg, bool certain);
	void *arg;
};

/*
 * Starts the engine; once, before anything else. A second call gives -EALREADY. Returns 0, or
 * -errno: -EINVAL (bad config), -ENOMEM (address space). Threads are started with the first context
 * of a device, not here.
 */
int sim_start(const struct sim_config *config);

/*
 * Ends everything: drains work, ends the threads, unmaps, forgets. For tests and for leak checkers;
 * no other thread may be inside. sim_start() may follow. Without sim_start() before it: nothing.
 */
void sim_stop(void);

/* Manual clock: completes up to `n` operations in submission order (event records and waits count
 * as operations), passing over those that wait for a value that is not there. Returns how many it
 * completed; 0 with a real clock. */
uint64_t sim_step(uint64_t n);

/* Operations submitted and not complete, over all devices. */
uint64_t sim_pending(void);

uint64_t sim_races_counted(void);
/* Somebody who is no stream (a network card, a disk) reads or writes the bytes now, and has ended
 * when this returns: judged like work of the host that nothing but the host's clock orders. */
void sim_accessor_touch(uint64_t addr, uint64_t n_bytes, bool writes);
/* Highest number of bytes in use on the device,
 * as counted against its capacity (pool memory included). */
uint64_t sim_peak_bytes(int device);
/* The same at the moment. */
uint64_t sim_used_bytes(int device);
/* The device's capacity in bytes as granted (mem_bytes rounded). 0 for no such device. */
uint64_t sim_total_bytes(int device);
int sim_device_count(void);

/* -------------------------------------------------------------- contexts --- */
/* Primary context. retain counts up and makes it if there is none; the
 * handle of a device's primary context is always the same value, its
 * id is new after each death. INVALID_DEVICE for a bad ordinal. */
int sim_primary_retain(int device, CUcontext *ret_ctx);
/* Counts down; the last one kills it like sim_ctx_destroy. INVALID_CONTEXT when not retained. */
int sim_primary_release(int device);
/* Kills it whatever the count, which becomes 0. Nothing to kill: success. */
int sim_primary_reset(int device);
/* `flags`: SUCCESS; PRIMARY_CONTEXT_ACTIVE never
 * arises (flags may change while active since 11.x). */
int sim_primary_set_flags(int device, unsigned flags);
int sim_primary_get_state(int device, unsigned *ret_flags, int *ret_active);

/* A context of its own, pushed on the caller's stack as natively. */
int sim_ctx_create(int device, unsigned flags, CUcontext *ret_ctx);
/* Waits for its work, frees its memory, kills its streams and events, pops it if it is the caller's
 * current one. The primary context: INVALID_CONTEXT. Captures in its streams are dropped. */
int sim_ctx_destroy(CUcontext handle);

/* The calling thread's stack. set_current replaces the top (NULL pops it); get_current gives NULL
 * when empty; pop on an empty stack: INVALID_CONTEXT. ret_ctx of pop may be NULL. */
int sim_ctx_set_current(CUcontext handle);
int sim_ctx_get_current(CUcontext *ret_ctx);
int sim_ctx_push(CUcontext handle);
int sim_ctx_pop(CUcontext *ret_ctx);
/* Of the current context. */
/* 0, or the code of the fault of a kernel in the calling thread's current context. Streams, events
 * and memory of such a context answer that code, too, to all that is asked of them: only its end
 * ends that. What was still to run there does not run. */
int sim_ctx_error(void);
int sim_ctx_get_device(int *ret_device);
int sim_ctx_get_flags(unsigned *ret_flags);
/* NULL means the current context. ids start at 1. */
int sim_ctx_get_id(CUcontext handle, unsigned long long *ret_id);
/* Waits for everything submitted to the current context before the call. */
int sim_ctx_sync(void);

/*
 * Green contexts (engine/green.c): made on a device, they retain its primary context until they
 * are destroyed. Their handle goes wherever a context's does, but to sim_ctx_destroy
 * (INVALID_CONTEXT). Of memory, events and errors the primary context is the owner. After
 * sim_green_destroy its streams answer SIM_ERROR_STREAM_DETACHED to everything but their own
 * destruction; their work still completes, and the primary context waits for it. INVALID_CONTEXT:
 * not a green one.
 */
enum {
	SIM_ERROR_STREAM_DETACHED = 917, /* CUDA_ERROR_STREAM_DETACHED */
};

int sim_green_create(int device, CUcontext *ret_ctx);
int sim_green_destroy(CUcontext handle);
/* Non-blocking, whatever context is current. */
int sim_green_stream_create(CUcontext handle, int priority, CUstream *ret_stream);
/* The context of a stream that is not green, and the green one; NULL: none. */
int sim_stream_get_ctxs(CUstream handle, CUcontext *ret_root, CUcontext *ret_green);

/*
 * Peer access of the current context to the memory of another device's context, for kernels
 * (engine/peer.c); one without it that touches such memory fails as at an illegal address (700).
 * 217 PEER_ACCESS_UNSUPPORTED: same device; 704, 705: enabled already, not enabled;
 * INVALID_CONTEXT: NULL, dead, or the current context itself.
 */
int sim_ctx_enable_peer(CUcontext handle);
int sim_ctx_disable_peer(CUcontext handle);

/* ---------------------------------------------------------------- memory --- */
/*
 * Device memory is host memory in a reserved range, so its contents are real and a host access to
 * memory that is not allocated faults. Up to 1 MiB: cut from 2 MiB chunks in 512-byte steps. More:
 * whole 2 MiB units on a 2 MiB boundary. Capacity counts whole 2 MiB units. Freed addresses come
 * back late.
 */
enum sim_mem_kind {
	SIM_MEM_DEVICE,
	SIM_MEM_PITCH,
	SIM_MEM_MANAGED,
	SIM_MEM_POOL,   /* sim_mem_alloc_async */
	SIM_MEM_HOST,   /* page-locked host memory */
	SIM_MEM_OPENED, /* sim_ipc_open */
	SIM_MEM_MAPPED, /* sim_range_map (engine_vmm.h); of no context */
};

struct sim_mem_info {
	CUdeviceptr base; /* what the allocation call returned */
	size_t n_bytes;   /* as requested (pitch: pitch x height) */
	enum sim_mem_kind kind;
	CUcontext ctx;         /* where it was allocated */
	int device;            /* ordinal of that context's device */
	unsigned long long id; /* unique over the process (CU_POINTER_ATTRIBUTE_BUFFER_ID) */
	unsigned sync_memops;  /* what sim_mem_set_sync_memops stored */
	CUmemoryPool pool;     /* it is of, or NULL */
	unsigned host_flags;   /* what sim_mem_set_host_flags stored */
};

/* INVALID_VALUE for 0 bytes, OUT_OF_MEMORY when it does not
 * fit (also absurd sizes), 900 while a capture forbids. */
int sim_mem_alloc(size_t n_bytes, CUdeviceptr *ret_ptr);
/* Rows of width_bytes, each aligned to 512. element_bytes must be 4, 8 or 16. */
int sim_mem_alloc_pitch(size_t width_bytes, size_t height, unsigned element_bytes,
			CUdeviceptr *ret_ptr, size_t *ret_pitch);
/* flags: 1 (attach global) or 2 (attach host). */
int sim_mem_alloc_managed(size_t n_bytes, unsigned flags, CUdeviceptr *ret_ptr);
/* NULL: success, nothing done. Otherwise waits for all work submitted to the
 * memory's context before the call, then gives the memory back. INVALID_VALUE:
 * not the base of live memory (unknown, interior, freed before, host). Memory
 * of any kind but SIM_MEM_HOST, from any current context, or none. */
int sim_mem_free(CUdeviceptr ptr);
int sim_mem_host_alloc(size_t n_bytes, void **ret_ptr);
int sim_mem_host_free(void *ptr);
/* What the program asked for; nothing depends on it. */
int sim_mem_set_host_flags(void *ptr, unsigned flags);

/* Default pool, release threshold 0: what is freed goes back to the device when its free has run.
 * The bytes count at once and come back when the free has run. In a capturing stream: NOT_SUPPORTED
 * (graph memory nodes are a later piece). 0 bytes: INVALID_VALUE. */
int sim_mem_alloc_async(size_t n_bytes, CUstream handle, CUdeviceptr *ret_ptr);
/* Frees at its place in the stream; no wait. Also for SIM_MEM_DEVICE and SIM_MEM_PITCH memory,
 * which is free when the stream, or its context (cuMemFree included), has been synchronised after
 * that. INVALID_VALUE: not the base of live memory, or a free of it is already queued. */
int sim_mem_free_async(CUdeviceptr ptr, CUstream handle);

/* Of the current context's device: capacity less units in use. */
int sim_mem_get_info(size_t *ret_free, size_t *ret_total);
/* The allocation that holds ptr, anywhere in it. INVALID_VALUE: none. */
int sim_mem_lookup(CUdeviceptr ptr, struct sim_mem_info *ret_info);
/* Memory of another process, or, config.ipc being "self", of this one. It is device memory that
 * sim_mem_free() refuses. Opened twice it is at the same address, and closed twice.
 * INVALID_CONTEXT: the process's own; 205 MAP_FAILED: not there. Closing waits for the context that
 * opened it. */
struct sim_ipc {
	int pid, device;
	uint64_t offset; /* in the device's file */
	uint64_t n_bytes;
	unsigned long long id; /* sim_mem_info.id there */
};
int sim_ipc_export(CUdeviceptr ptr, struct sim_ipc *ret_ipc);
int sim_ipc_open(const struct sim_ipc *ipc, CUdeviceptr *ret_ptr);
int sim_ipc_close(CUdeviceptr ptr);
int sim_mem_set_sync_memops(CUdeviceptr ptr, unsigned value);

/* --------------------------------------------------------------- streams --- */
enum {
	SIM_STREAM_NON_BLOCKING = 1,
};

int sim_stream_create(unsigned flags, int priority, CUstream *ret_stream);
/* Outstanding work still completes, and the legacy stream and marks of the context still wait for
 * it. The default streams: INVALID_HANDLE. The stream that began a capture: the capture is dropped;
 * one that joined: invalidated. */
int sim_stream_destroy(CUstream handle);
/* Legacy default stream: also waits for the blocking streams of its context, as every action on it
 * does. A capturing stream: 900, and the capture is invalidated. */
int sim_stream_sync(CUstream handle);
/* 0 or CUDA_ERROR_NOT_READY. */
int sim_stream_query(CUstream handle);
int sim_stream_get_flags(CUstream handle, unsigned *ret_flags);
int sim_stream_get_priority(CUstream handle, int *ret_priority);
int sim_stream_get_ctx(CUstream handle, CUcontext *ret_ctx);
/* Unique over the process; default streams have ids too. */
int sim_stream_get_id(CUstream handle, unsigned long long *ret_id);
int sim_stream_get_device(CUstream handle, int *ret_device);
int sim_stream_wait_event(CUstream stream_handle, CUevent handle, unsigned flags);

/* ---------------------------------------------------------------- events --- */
enum {
	SIM_EVENT_BLOCKING_SYNC = 1,
	SIM_EVENT_DISABLE_TIMING = 2,
	SIM_EVENT_INTERPROCESS = 4,
};

/* Unknown flags, or INTERPROCESS without DISABLE_TIMING: INVALID_VALUE.
 * INTERPROCESS itself changes nothing: there is no other process. */
int sim_event_create(unsigned flags, CUevent *ret_event);
int sim_event_destroy(CUevent handle);
/* Event and stream must be of the same context: else INVALID_HANDLE. */
int sim_event_record(CUevent handle, CUstream stream_handle);
/* Never recorded: 0. Last recorded in a capture: CUDA_ERROR_CAPTURED_EVENT. */
int sim_event_query(CUevent handle);
int sim_event_sync(CUevent handle);
/* Milliseconds. INVALID_HANDLE: never recorded or without timing; NOT_READY: not complete. */
int sim_event_elapsed(CUevent start_handle, CUevent end_handle, float *ret_ms);

/* Marks of a whole context (cuCtxRecordEvent, cuCtxWaitEvent); NULL means the current one. 900, and
 * the captures of that context are invalidated, while one of its streams captures. */
int sim_ctx_record_event(CUcontext ctx_handle, CUevent handle);
int sim_ctx_wait_event(CUcontext ctx_handle, CUevent handle);

/* -------------------------------------------------------- copies and sets --- */
enum sim_copy_kind {
	SIM_COPY_ANY,  /* both looked up (cuMemcpy) */
	SIM_COPY_HTOD, /* dst must be device memory */
	SIM_COPY_DTOH, /* src must be device memory */
	SIM_COPY_DTOD, /* both (also between devices and contexts: cuMemcpyPeer) */
};

/* Bytes of which each row is contiguous: `slices` times `rows` of `width` bytes. */
struct sim_area {
	uint64_t addr;          /* of the first byte */
	uint64_t width;         /* bytes of a row */
	uint64_t rows, pitch;   /* rows of a slice; bytes from one to the next, at least width */
	uint64_t slices, slice; /* bytes from one to the next, at least those of its rows */
};

static inline struct sim_area
sim_line(uint64_t addr, uint64_t n_bytes)
{
	return (struct sim_area){ addr, n_bytes, 1, n_bytes, 1, n_bytes };
}

/*
 * Copies between areas of the same width, rows and slices; no bytes: success, nothing done.
 * Addresses are device pointers or host addresses cast to uint64_t. Outside live memory where
 * device memory is required, or more than an address range holds: INVALID_VALUE. What the host
 * waits for:
 *   sync: pageable -> device: nothing, the source is read before return; pinned -> device: the
 * copy; device -> host: the copy; device -> device: nothing; host -> host: the copy.
 *   async: pageable -> device: nothing, the source is read before return; device -> pageable: the
 * copy (teaches the host clock); host -> host: the copy; the rest: nothing.
 * Managed memory counts as device memory. `sync` false is the Async form. A synchronous form takes
 * NULL or CU_STREAM_PER_THREAD for stream.
 */
int sim_copy_area(const struct sim_area *dst, const struct sim_area *src, enum sim_copy_kind kind,
		  CUstream handle, bool sync);
/* The same for n_bytes in a line. */
int sim_copy(uint64_t dst, uint64_t src, size_t n_bytes, enum sim_copy_kind kind, CUstream handle,
	     bool sync);

/* Elements of element_bytes (1, 2, 4), value's low bits. Rows begin at multiples of the element and
 * consist of whole ones, else INVALID_VALUE. The sync form waits only if dst is page-locked host
 * memory. */
int sim_set_area(const struct sim_area *dst, uint32_t value, unsigned element_bytes,
		 CUstream handle, bool sync);
/* The same for n elements in a line. */
int sim_set(CUdeviceptr dst, uint32_t value, unsigned element_bytes, size_t n, CUstream handle,
	    bool sync);

enum sim_use {
	SIM_USE_PREFETCH, /* its bytes are read */
	SIM_USE_ATTACH,   /* nobody else may use it meanwhile: as if they were written */
	SIM_USE_DISCARD,  /* afterwards they hold anything: 0xdb */
};

/* Work on managed memory that changes where it is or what may be read. All of [ptr, ptr + n_bytes)
 * is in one managed allocation, else INVALID_VALUE. */
int sim_mem_use(CUdeviceptr ptr, size_t n_bytes, enum sim_use use, CUstream handle);

/* ------------------------------------------------------ values in memory --- */
enum sim_compare {                  /* values are those of CUstreamWaitValue_flags */
		   SIM_COMPARE_GEQ, /* (int32_t)(word - value) >= 0, or 64 bits: cyclic */
		   SIM_COMPARE_EQ,
		   SIM_COMPARE_AND,      /* (word & value) != 0 */
		   SIM_COMPARE_NOR,      /* ~(word | value) != 0 */
		   SIM_COMPARE_TIMELINE, /* word >= value, of 8 bytes */
};

/*
 * Memory operations of streams, on a word of n_bytes (4 or 8, aligned) in device, managed or
 * page-locked host memory; elsewhere: INVALID_VALUE. A wait ends when somebody made the comparison
 * true: another stream, or the host by writing the word. `release`: what comes before the write in
 * its stream is before what comes after a wait it satisfies (else the oracle learns nothing). For
 * the oracle see engine/order.c; sim_wait and sim_signal are the same as kernels.
 */
int sim_stream_wait_value(CUstream handle, CUdeviceptr ptr, uint64_t value, unsigned n_bytes,
			  enum sim_compare compare);
int sim_stream_write_value(CUstream handle, CUdeviceptr ptr, uint64_t value, unsigned n_bytes,
			   bool release);
/* The same on a word of 8 bytes that nobody else writes, in ascending order (a timeline
 * semaphore's): a wait learns from the first signal that satisfies it alone. */
int sim_stream_wait_timeline(CUstream handle, CUdeviceptr ptr, uint64_t value);
int sim_stream_write_timeline(CUstream handle, CUdeviceptr ptr, uint64_t value);

/* -------------------------------------------------------- host functions --- */
/* As CUhostFn and CUstreamCallback. */
typedef void (*sim_host_function)(void *data);
typedef void (*sim_callback)(CUstream stream, CUresult status, void *data);

/*
 * Called by a thread of the engine, without its lock, one at a time over the whole process, when
 * what is before it in the stream is done; what comes after it waits until it has returned. Neither
 * may call the engine. A host function is not called once its context has an error; a callback gets
 * that error, and is refused while the stream captures (900). `shown` is the stream argument it is
 * given. NULL function: INVALID_VALUE.
 */
int sim_stream_host_function(CUstream handle, sim_host_function function, void *data);
int sim_stream_callback(CUstream handle, sim_callback callback, void *data, CUstream shown);
/* True in a thread that is executing one. */
bool sim_in_host_function(void);

/* --------------------------------------------------------------- kernels --- */
enum sim_kernel {
	SIM_KERNEL_FILL,  /* ptr, n_words, value, spin_us */
	SIM_KERNEL_CHECK, /* ptr, n_words, value, errors_ptr, spin_us: counts words != value */
	SIM_KERNEL_COPY,  /* dst, src, n_words, spin_us */
	/* ptr, value: a 32-bit word. WAIT ends when the word equals value and holds up nothing but
	   what is ordered after it. SIGNAL stores value, atomically, after all before it in its
	   stream. Both touch the word as atomic adds do: neither races with the other. */
	SIM_KERNEL_WAIT,
	SIM_KERNEL_SIGNAL,
	/* code, spin_us: faults. From its end on calls that need its context answer `code`, and no
	   work of that context runs any more. */
	SIM_KERNEL_FAULT,
	SIM_KERNEL_COUNT,
};

/* By name ("sim_fill"); -ENOENT when there is none. */
int sim_kernel_find(const char *name, enum sim_kernel *ret_kernel);
unsigned sim_kernel_arg_count(enum sim_kernel kernel);
const char *sim_kernel_name(enum sim_kernel kernel);
/* args: sim_kernel_arg_count() values of 8 bytes. Addresses are judged when it runs: one outside
 * live memory is a fault with code 700. INVALID_VALUE: not aligned
 * (words to 4, errors_ptr to 8), or too many words. */
int sim_kernel_launch(enum sim_kernel kernel, const uint64_t *args, CUstream handle);
/* With launch attributes (engine/pdl.c). overlap: it may start before the kernel in front of it in
 * the stream ends. event: NULL, or recorded so that it may fire when the kernel has started; it
 * must be without timing. While the stream captures: NOT_SUPPORTED. */
int sim_kernel_launch_programmatic(enum sim_kernel kernel, const uint64_t *args, CUstream handle,
				   bool overlap, CUevent event_handle);

/* -------------------------------------------------------------- captures --- */
/* Begin: 401 when capturing already, 900 on the legacy stream. While it captures, submissions to
 * the stream are recorded; another stream joins by waiting for an event recorded there. */
int sim_capture_begin(CUstream handle, CUstreamCaptureMode mode);
/* 401 not capturing; 903 not the stream that began; 908 other thread than began it (unless RELAXED;
 * the capture goes on); 901 was invalidated; 904 a fork was not joined. After 901 and 904 the
 * capture is over. */
int sim_capture_end(CUstream handle, CUgraph *ret_graph);
/* Status; ret_id (may be NULL) only when active. 906 for the legacy stream while a blocking stream
 * captures (nothing is invalidated by asking). */
int sim_capture_info(CUstream handle, CUstreamCaptureStatus *ret_status, cuuint64_t *ret_id);
/* Swaps the calling thread's mode with *mode. INVALID_VALUE for no mode. */
int sim_capture_exchange_mode(CUstreamCaptureMode *mode);

/* Begins a capture that adds to a graph, after the n nodes. Ending it returns that graph; it lives
 * on if the capture fails. INVALID_VALUE: no graph, one being captured into, or no node of it. */
int sim_capture_begin_into(CUstream handle, CUgraph graph_handle, const CUgraphNode *nodes,
			   size_t n, CUstreamCaptureMode mode);
/* The graph under capture, and what the stream's next node will depend on; the list lives until the
 * next such call for the stream or the end of the capture. ILLEGAL_STATE: not capturing. */
int sim_capture_look(CUstream handle, CUgraph *ret_graph, const CUgraphNode **ret_nodes,
		     size_t *ret_n);
/* Adds to what the next node will depend on, or replaces it. ILLEGAL_STATE: not capturing. */
int sim_capture_update(CUstream handle, const CUgraphNode *nodes, size_t n, bool replace);

struct sim_exec; /* CUgraphExec of the bridge; only a handle outside the engine */

/*
 * Graphs built by hand: each node comes after the n nodes given. Allowed on a graph under capture.
 * They belong to the current context. INVALID_VALUE: no graph, or no node of it. A copy takes
 * addresses as sim_copy_area(SIM_COPY_ANY), a pageable side being used when it runs. An event is
 * recorded or waited for by each launch; one that is destroyed is passed over. A child graph is
 * copied, user objects included.
 */
int sim_graph_create(CUgraph *ret_graph);
int sim_graph_add_empty(CUgraph graph, const CUgraphNode *deps, size_t n, CUgraphNode *ret_node);
int sim_graph_add_kernel(CUgraph graph, const CUgraphNode *deps, size_t n, enum sim_kernel kernel,
			 const uint64_t *args, CUgraphNode *ret_node);
int sim_graph_add_copy(CUgraph graph, const CUgraphNode *deps, size_t n, const struct sim_area *dst,
		       const struct sim_area *src, CUgraphNode *ret_node);
int sim_graph_add_set(CUgraph graph, const CUgraphNode *deps, size_t n, const struct sim_area *dst,
		      uint32_t value, unsigned element_bytes, CUgraphNode *ret_node);
int sim_graph_add_host(CUgraph graph, const CUgraphNode *deps, size_t n, sim_host_function function,
		       void *data, CUgraphNode *ret_node);
int sim_graph_add_event(CUgraph graph, const CUgraphNode *deps, size_t n, CUevent event,
			bool record, CUgraphNode *ret_node);
int sim_graph_add_child(CUgraph handle, const CUgraphNode *deps, size_t n, CUgraph child_handle,
			CUgraphNode *ret_node);
int sim_graph_clone(CUgraph handle, CUgraph *ret_graph);

enum {
	SIM_GRAPH_EXEC_UPDATE_FAILURE = 910, /* CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE */
};

/* Takes the nodes of a graph of the same shape over. GRAPH_EXEC_UPDATE_FAILURE: another shape. */
int sim_exec_update(struct sim_exec *handle, CUgraph graph_handle);
/* A mark in the stream. */
int sim_exec_upload(struct sim_exec *handle, CUstream stream_handle);

/* User objects (engine/userobj.c). INVALID_VALUE: no such object or graph, no references, or more
 * than are held. move: the caller's references become the graph's. */
struct sim_user_object;
int sim_user_object_create(void *data, sim_host_function destroy, unsigned n_refs,
			   struct sim_user_object **ret_object);
int sim_user_object_retain(struct sim_user_object *handle, unsigned n);
int sim_user_object_release(struct sim_user_object *handle, unsigned n);
int sim_graph_retain_object(CUgraph graph_handle, struct sim_user_object *handle, unsigned n,
			    bool move);
int sim_graph_release_object(CUgraph graph_handle, struct sim_user_object *handle, unsigned n);

int sim_graph_destroy(CUgraph handle);
/* Up to *n nodes, then NULL; *n becomes how many there are (at most *n). ret_nodes NULL: *n only.
 */
int sim_graph_get_nodes(CUgraph handle, CUgraphNode *ret_nodes, size_t *n);
/* The type of a node, and its event if it has one. */
int sim_node_look(CUgraphNode handle, CUgraphNodeType *ret_type, CUevent *ret_event);
/* Number of nodes captured. */
int sim_graph_node_count(CUgraph handle, size_t *ret_n);
/* NOT_SUPPORTED: it has memory nodes, and an executable of it lives. */
int sim_graph_instantiate(CUgraph handle, struct sim_exec **ret_exec);
/* Each launch frees first what its allocation nodes have. */
int sim_exec_set_auto_free(struct sim_exec *handle);
/* Runs the nodes in captured order:
 * after the stream's earlier work and the exec's earlier launches. */
int sim_exec_launch(struct sim_exec *handle, CUstream stream_handle);
/* A launch under way still completes. */
int sim_exec_destroy(struct sim_exec *handle);
