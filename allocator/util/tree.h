/* SPDX-License-Identifier: MIT */
/*
 * One intrusive balanced tree (AVL), ordered by a pair of integers kept in the node. Keys are
 * unique. Not thread-safe: the heap's lock is held.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ca_tree_node {
	struct ca_tree_node *parent;
	struct ca_tree_node *child[2]; /* smaller, greater */
	uint64_t key;                  /* first order: size or address, bytes */
	uint64_t subkey;               /* second order: address, or 0 */
	int height;                    /* 1 for a leaf; 0: in no tree */
	unsigned class;                /* allocator/util/size_index.h: which tree */
};

struct ca_tree {
	struct ca_tree_node *root;
};

/* The tree has the node, and no other. */
static inline bool
ca_tree_is_single(const struct ca_tree *tree, const struct ca_tree_node *node)
{
	return tree->root == node && node->height == 1;
}

/* `node` must be in no tree, and no node with the same keys in `tree`. */
void ca_tree_insert(struct ca_tree *tree, struct ca_tree_node *node, uint64_t key, uint64_t subkey);
/* Harmless on a node that is in no tree. */
void ca_tree_remove(struct ca_tree *tree, struct ca_tree_node *node);
/* Gives the node, in this tree or in none, new keys; cheap if it keeps its place. */
void ca_tree_update(struct ca_tree *tree, struct ca_tree_node *node, uint64_t key, uint64_t subkey);
/* The first node with keys >= (key, subkey), or NULL. */
struct ca_tree_node *ca_tree_at_least(const struct ca_tree *tree, uint64_t key, uint64_t subkey);
/* The node with just these keys, or NULL. */
static inline struct ca_tree_node *
ca_tree_find(const struct ca_tree *tree, uint64_t key, uint64_t subkey)
{
	struct ca_tree_node *node = ca_tree_at_least(tree, key, subkey);

	return node && node->key == key && node->subkey == subkey ? node : NULL;
}
/* The last node whose first key is <= key, or NULL. */
struct ca_tree_node *ca_tree_at_most(const struct ca_tree *tree, uint64_t key);
struct ca_tree_node *ca_tree_first(const struct ca_tree *tree);
struct ca_tree_node *ca_tree_last(const struct ca_tree *tree);
struct ca_tree_node *ca_tree_next(const struct ca_tree_node *node);
