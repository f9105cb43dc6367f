/* SPDX-License-Identifier: MIT */
/*
 * Free blocks by size: trees (allocator/util/tree.h), one for each class of sizes, and a bit for
 * each that is not empty. The order is that of one tree; but each is small, and mostly empty. Keys
 * are unique. Not thread-safe: the heap's lock is held.
 */
#pragma once

#include "allocator/util/tree.h"

enum {
	CA_CLASSES_LOG = 4, /* classes for each power of two */
	CA_CLASSES = (64 - 9) << CA_CLASSES_LOG,
	CA_CLASS_WORDS = (CA_CLASSES + 63) / 64,
};

struct ca_index {
	unsigned words;                 /* bits: of `taken`, which are not 0 */
	uint64_t taken[CA_CLASS_WORDS]; /* bits: trees that are not empty */
	struct ca_tree classes[CA_CLASSES];
};

/* All zeros is an empty one. */
void ca_index_init(struct ca_index *index);
static inline bool
ca_index_is_empty(const struct ca_index *index)
{
	return !index->words;
}
/* As the functions of tree.h; key: bytes, at least 1. */
void ca_index_set(struct ca_index *index, struct ca_tree_node *node, uint64_t key, uint64_t subkey);
void ca_index_remove_from(struct ca_index *index, struct ca_tree_node *node);
static inline void
ca_index_remove(struct ca_index *index, struct ca_tree_node *node)
{
	if (node->height)
		ca_index_remove_from(index, node);
}
struct ca_tree_node *ca_index_at_least(const struct ca_index *index, uint64_t key, uint64_t subkey);
/* False: nothing has just this key, or one about as large. */
bool ca_index_has_about(const struct ca_index *index, uint64_t key);
struct ca_tree_node *ca_index_first(const struct ca_index *index);
struct ca_tree_node *ca_index_last(const struct ca_index *index);
struct ca_tree_node *ca_index_next(const struct ca_index *index, const struct ca_tree_node *node);
