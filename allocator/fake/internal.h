/* SPDX-License-Identifier: MIT */
/* Shared by the files of the model. */
#pragma once

#include <pthread.h>

#include "allocator/util/arena.h"
#include "allocator/util/list.h"
#include "allocator/fake/fake.h"
#include "allocator/util/tree.h"

/* Above all that a driver gives: placed segments lie below, the rest above. */
#define PLACES_END ((uint64_t)1 << 57)

enum { INVALID_VALUE = 1, INVALID_CONTEXT = 201 }; /* cuda.h */

/* Memory that is mapped, at one address or several. */
struct memory {
	unsigned maps;
};

struct range {
	struct ca_tree_node node; /* held: by address; free: by (bytes, address) */
	uint64_t address;
	uint64_t bytes; /* as asked for */
	void *context;
	bool managed;          /* held, and takes nothing of the capacity */
	bool mapped;           /* into a reserved range; `context` NULL: the range itself */
	struct memory *memory; /* of a mapped one */
	bool placed;           /* where ca_model_place said: not for others */
};

struct mark {
	struct ca_tree_node node;       /* by id */
	uint64_t work;                  /* submitted when it was recorded */
	bool stream;                    /* of one stream */
	uint64_t end[CA_MODEL_STREAMS]; /* work of each stream that must finish */
	uint64_t end_ns;                /* when that will have finished by time */
};

/* Work of a stream that ends by time. */
struct work {
	struct work *next;
	uint64_t work, end_ns;
};

/* Work of a stream after piece `at` comes after what `mark` stood for. */
struct edge {
	struct edge *next;
	uint64_t at;
	uint64_t end[CA_MODEL_STREAMS];
};

struct stream {
	void *name;
	uint64_t submitted, finished;
	uint64_t after[CA_MODEL_STREAMS]; /* its next piece comes after these */
	struct edge *edges;
	struct work *works, **works_end; /* oldest first; works_end NULL: none so far */
	uint64_t ready_ns;               /* when its next piece can begin, by time */
	bool private;
	pthread_t owner;
};

struct ca_model {
	struct ca_arena arena;
	struct ca_objects ranges, memories, marks, edges, works;
	pthread_mutex_t lock;
	struct ca_model_config config;
	struct ca_model_sums sums;
	struct ca_tree held, freed, recorded;
	struct ca_tree reserved; /* ranges that memory is mapped into, by address */
	struct ca_tree dead;     /* destroyed contexts: ranges without bytes, by context */
	uint64_t next_address;
	uint64_t place_address, place_bytes; /* for the next range of so many bytes; 0: anywhere */
	uint64_t next_mark;
	uint64_t submitted, finished; /* pieces of work */
	struct stream streams[CA_MODEL_STREAMS];
	unsigned n_streams;
	uint64_t now_ns;
	uint64_t paused_ns; /* since the last submission */
	enum ca_model_function fail_function;
	unsigned fail_in; /* calls until the failure; 0: none */
	bool fail_for_ever;
	bool failed;
	int fail_code;
	_Atomic bool capturing; /* read without the lock: every allocation asks */
	bool relaxed;           /* segments may be returned in the capture */
	ca_model_observer *observer;
	void *observer_arg;
	ca_model_segment_observer *segment_observer;
	void *segment_observer_arg;
};

/* The model's lock is held from here to the end of the block. */
#define CA_MODEL_LOCKED(model)                                                                     \
	__attribute__((cleanup(ca_model_scope_end), unused)) struct ca_model *ca_model_locked =    \
		(pthread_mutex_lock(&(model)->lock), (model))
static inline void
ca_model_scope_end(struct ca_model **model)
{
	pthread_mutex_unlock(&(*model)->lock);
}

/* The same for a driver call: the observer is told of its begin and of its end. */
#define CA_MODEL_CALL(model, function)                                                             \
	__attribute__((cleanup(ca_model_call_end), unused)) struct ca_model_call ca_model_call =   \
		ca_model_call_begin(model, function)
struct ca_model_call {
	struct ca_model *model;
	enum ca_model_function function;
};
struct ca_model_call ca_model_call_begin(struct ca_model *model, enum ca_model_function function);
void ca_model_call_end(const struct ca_model_call *call);

/* The rest wants the model's lock. */

/* Counts a call, and applies the plan of failures. */
int ca_model_begin(struct ca_model *model, enum ca_model_function function);
/* The same for a call that names a context. */
int ca_model_begin_in(struct ca_model *model, enum ca_model_function function, void *context);
/* That begins at the address; NULL: none does. */
struct range *ca_model_range_find(struct ca_tree *tree, uint64_t address);
/* The held range is held no more. */
void ca_model_range_free(struct ca_model *model, struct range *range);
void ca_model_note_segment(struct ca_model *model, enum ca_model_segment change, uint64_t address,
			   uint64_t bytes);
struct mark *ca_model_mark_new(struct ca_model *model, ca_mark *ret_mark);
struct mark *ca_model_mark_find(struct ca_model *model, ca_mark id);

void ca_model_mark_everything(struct ca_model *model, struct mark *mark);
bool ca_model_mark_is_done(const struct ca_model *model, const struct mark *mark);
void ca_model_mark_finish(struct ca_model *model, const struct mark *mark);
void ca_model_finish_all(struct ca_model *model);
/* The host has been busy for so long. */
void ca_model_pass(struct ca_model *model, uint64_t ns);
/* The clock is `now_ns` at least: work that ends by then has finished. */
void ca_model_await(struct ca_model *model, uint64_t now_ns);
/* When the next work will have ended by time; UINT64_MAX: none will. */
uint64_t ca_model_next_end(const struct ca_model *model);

/* struct ca_driver's */
int ca_model_segment_take(void *self, void *context, uint64_t size, uint64_t *ret_address);
int ca_model_managed_take(void *self, void *context, uint64_t size, uint64_t *ret_address);
int ca_model_segment_return(void *self, void *context, uint64_t address);
int ca_model_memory_info(void *self, void *context, uint64_t *ret_free, uint64_t *ret_total);
int ca_model_mark_record(void *self, void *context, ca_mark *ret_mark);
int ca_model_mark_query(void *self, ca_mark mark);
int ca_model_mark_wait(void *self, ca_mark mark);
void ca_model_mark_drop(void *self, ca_mark id);
int ca_model_synchronize(void *self, void *context);
int ca_model_context_synchronize(void *self, void *context);
int ca_model_range_reserve(void *self, void *context, uint64_t *ret_address, uint64_t *ret_bytes);
int ca_model_range_map(void *self, void *context, uint64_t address, uint64_t bytes);
int ca_model_range_alias(void *self, void *context, uint64_t from, uint64_t to, uint64_t bytes);
int ca_model_range_unmap(void *self, void *context, uint64_t address, uint64_t bytes);
void ca_model_range_release(void *self, void *context, uint64_t address, uint64_t bytes);
int ca_model_stream_mark(void *self, void *context, void *stream, ca_mark *ret_mark);
int ca_model_stream_wait(void *self, void *context, void *stream, ca_mark mark);
int ca_model_stream_query(void *self, void *context, void *stream);
int ca_model_stream_synchronize(void *self, void *context, void *stream);
