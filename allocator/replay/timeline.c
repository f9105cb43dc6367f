/* SPDX-License-Identifier: MIT */
/*
 * Columns that grow, and the live segments by address. An event is a row of the columns kind,
 * time_ns, arg and waiting. A return is a TRIM until the file is written.
 */
#include "allocator/replay/timeline_inside.h"

#include <stdlib.h>
#include <string.h>

#include "allocator/util/list.h"

#define NO_BLOCK UINT32_MAX

const struct ca_timeline_column_type ca_timeline_columns[] = {
#define X(name, width, type) { #name, type, width },
	CA_TIMELINE_COLUMNS(X)
#undef X
};

struct segment {
	struct ca_tree_node node; /* by address */
	uint64_t bytes;
	uint32_t number;
};

struct ca_timeline *
ca_timeline_create(uint32_t n_blocks)
{
	struct ca_timeline *timeline = calloc(1, sizeof(*timeline));
	size_t bytes = ((size_t)n_blocks + 1) * sizeof(*timeline->number_of);

	if (!timeline)
		return NULL;
	timeline->number_of = malloc(bytes);
	if (!timeline->number_of) {
		free(timeline);
		return NULL;
	}
	memset(timeline->number_of, 0xff, bytes);
	timeline->n_blocks = n_blocks;
	timeline->now_ns = timeline->last_ns = CA_REPLAY_NO_TIME;
	return timeline;
}

void
ca_timeline_destroy(struct ca_timeline *timeline)
{
	struct ca_tree_node *node;
	unsigned i;

	if (!timeline)
		return;
	while ((node = ca_tree_first(&timeline->segments))) {
		ca_tree_remove(&timeline->segments, node);
		free(CA_CONTAINER_OF(node, struct segment, node));
	}
	for (i = 0; i < CA_TIMELINE_COLUMN_COUNT; i++)
		free(timeline->column[i].data);
	free(timeline->number_of);
	free(timeline);
}

/* ---- columns */

static void
put(struct ca_timeline *timeline, unsigned number, uint64_t value)
{
	struct ca_timeline_column *column = &timeline->column[number];
	unsigned width = ca_timeline_columns[number].width;

	if (column->count == column->room) {
		size_t room = column->room ? 2 * column->room : 1024;
		uint8_t *bigger = realloc(column->data, room * width);

		if (!bigger) {
			timeline->failed = true;
			return;
		}
		column->data = bigger;
		column->room = room;
	}
	memcpy(column->data + column->count++ * width, &value, width);
}

static uint64_t
get(const struct ca_timeline *timeline, unsigned number, size_t row)
{
	uint64_t value = 0;

	memcpy(&value, timeline->column[number].data + row * ca_timeline_columns[number].width,
	       ca_timeline_columns[number].width);
	return value;
}

static void
put_event(struct ca_timeline *timeline, enum ca_timeline_kind kind, uint64_t arg)
{
	uint64_t passed = 0;

	if (timeline->now_ns != CA_REPLAY_NO_TIME) {
		if (timeline->last_ns != CA_REPLAY_NO_TIME && timeline->now_ns > timeline->last_ns)
			passed = timeline->now_ns - timeline->last_ns;
		if (timeline->last_ns == CA_REPLAY_NO_TIME || passed)
			timeline->last_ns = timeline->now_ns;
	}
	put(timeline, CA_TIMELINE_COLUMN_kind, kind);
	put(timeline, CA_TIMELINE_COLUMN_time_ns, passed);
	put(timeline, CA_TIMELINE_COLUMN_arg, arg);
	put(timeline, CA_TIMELINE_COLUMN_waiting, timeline->waiting);
}

void
ca_timeline_at(struct ca_timeline *timeline, uint64_t time_ns)
{
	if (time_ns != CA_REPLAY_NO_TIME)
		timeline->now_ns = time_ns;
}

void
ca_timeline_set_waiting(struct ca_timeline *timeline, uint64_t bytes)
{
	struct ca_timeline_column *column = &timeline->column[CA_TIMELINE_COLUMN_waiting];

	timeline->waiting = bytes;
	if (column->count)
		memcpy(column->data + (column->count - 1) * sizeof(bytes), &bytes, sizeof(bytes));
}

/* ---- segments */

static struct segment *
segment_at(const struct ca_timeline *timeline, uint64_t address)
{
	struct ca_tree_node *node = ca_tree_at_most(&timeline->segments, address);
	struct segment *segment = node ? CA_CONTAINER_OF(node, struct segment, node) : NULL;

	return segment && address - node->key < segment->bytes ? segment : NULL;
}

/* The first that has a byte of the range. */
static struct segment *
segment_in(const struct ca_timeline *timeline, uint64_t address, uint64_t bytes)
{
	struct segment *segment = segment_at(timeline, address);
	struct ca_tree_node *node;

	if (segment || !bytes)
		return segment;
	node = ca_tree_at_least(&timeline->segments, address, 0);
	return node && node->key - address < bytes ? CA_CONTAINER_OF(node, struct segment, node)
						   : NULL;
}

static void
segment_add(struct ca_timeline *timeline, enum ca_timeline_kind kind, uint64_t address,
	    uint64_t bytes)
{
	struct segment *segment = calloc(1, sizeof(*segment));
	size_t number = timeline->column[CA_TIMELINE_COLUMN_segment_address].count;

	if (!segment || number >= CA_TIMELINE_NO_SEGMENT) {
		timeline->failed = true;
		free(segment);
		return;
	}
	segment->bytes = bytes;
	segment->number = (uint32_t)number;
	ca_tree_insert(&timeline->segments, &segment->node, address, 0);
	put(timeline, CA_TIMELINE_COLUMN_segment_address, address);
	put(timeline, CA_TIMELINE_COLUMN_segment_bytes, bytes);
	put(timeline, CA_TIMELINE_COLUMN_segment_road, timeline->road);
	put_event(timeline, kind, segment->number);
}

void
ca_timeline_return(struct ca_timeline *timeline, uint64_t address, uint64_t bytes)
{
	uint64_t end = bytes > UINT64_MAX - address ? UINT64_MAX : address + bytes;
	struct segment *segment;

	while (address < end && (segment = segment_in(timeline, address, end - address))) {
		uint64_t first = segment->node.key, last = first + segment->bytes;

		ca_tree_remove(&timeline->segments, &segment->node);
		put_event(timeline, CA_TIMELINE_TRIM, segment->number);
		free(segment);
		if (first < address)
			segment_add(timeline, CA_TIMELINE_HELD, first, address - first);
		if (last > end)
			segment_add(timeline, CA_TIMELINE_HELD, end, last - end);
	}
}

void
ca_timeline_set_road(struct ca_timeline *timeline, enum ca_replay_road road)
{
	timeline->road = road;
}

void
ca_timeline_take(struct ca_timeline *timeline, bool held, uint64_t address, uint64_t bytes)
{
	if (!bytes || bytes > UINT64_MAX - address)
		return;
	ca_timeline_return(timeline, address, bytes);
	segment_add(timeline, held ? CA_TIMELINE_HELD : CA_TIMELINE_TAKEN, address, bytes);
}

void
ca_timeline_each_gap(struct ca_timeline *timeline, uint64_t address, uint64_t bytes,
		     void (*found)(void *arg, uint64_t address, uint64_t bytes), void *arg)
{
	uint64_t end = bytes > UINT64_MAX - address ? UINT64_MAX : address + bytes;

	while (address < end) {
		struct segment *next = segment_in(timeline, address, end - address);
		uint64_t first = next ? next->node.key : end;

		if (first > address)
			found(arg, address, first - address);
		address = next ? first + next->bytes : end;
	}
}

/* ---- blocks */

void
ca_timeline_alloc(struct ca_timeline *timeline, bool live, uint32_t block, uint64_t address,
		  const struct ca_replay_event *event, uint64_t size)
{
	size_t number = timeline->column[CA_TIMELINE_COLUMN_address].count;
	const struct segment *segment = segment_at(timeline, address);

	if (number >= NO_BLOCK || block >= timeline->n_blocks) {
		timeline->failed = true;
		return;
	}
	timeline->number_of[block] = (uint32_t)number;
	put(timeline, CA_TIMELINE_COLUMN_address, address);
	put(timeline, CA_TIMELINE_COLUMN_requested, event->bytes);
	put(timeline, CA_TIMELINE_COLUMN_size, size);
	put(timeline, CA_TIMELINE_COLUMN_stream, event->stream);
	put(timeline, CA_TIMELINE_COLUMN_segment,
	    segment ? segment->number : CA_TIMELINE_NO_SEGMENT);
	put_event(timeline, live ? CA_TIMELINE_LIVE : CA_TIMELINE_ALLOC, 0);
}

void
ca_timeline_free(struct ca_timeline *timeline, uint32_t block)
{
	if (block < timeline->n_blocks && timeline->number_of[block] != NO_BLOCK)
		put_event(timeline, CA_TIMELINE_FREED, timeline->number_of[block]);
}

uint64_t
ca_timeline_size_of(const struct ca_timeline *timeline, uint32_t block)
{
	uint32_t number = block < timeline->n_blocks ? timeline->number_of[block] : NO_BLOCK;

	return number == NO_BLOCK ? 0 : get(timeline, CA_TIMELINE_COLUMN_size, number);
}

void
ca_timeline_add(struct ca_timeline *timeline, enum ca_timeline_kind kind, uint64_t bytes)
{
	uint64_t arg = 0;

	if (kind == CA_TIMELINE_REFUSED || kind == CA_TIMELINE_FAILED) {
		arg = timeline->column[CA_TIMELINE_COLUMN_failed].count;
		put(timeline, CA_TIMELINE_COLUMN_failed, bytes);
	}
	put_event(timeline, kind, arg);
}
