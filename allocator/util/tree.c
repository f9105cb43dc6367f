/* SPDX-License-Identifier: MIT */
/*
 * AVL tree with parent pointers: the heights of two siblings differ by one at most, so that every
 * search takes at most 1.44 log2(n) steps. After an insertion or removal the way up to the root is
 * walked as far as heights change: each is recomputed and a node out of balance is rotated.
 */
#include "allocator/util/tree.h"

#include <stddef.h>

static int
height(const struct ca_tree_node *node)
{
	return node ? node->height : 0;
}

static void
height_update(struct ca_tree_node *node)
{
	int a = height(node->child[0]), b = height(node->child[1]);

	node->height = (a > b ? a : b) + 1;
}

static int
side_of(const struct ca_tree_node *node)
{
	return node->parent->child[1] == node;
}

/* Puts `next` (may be NULL) in the place of `node` under node's parent. */
static void
replace(struct ca_tree *tree, struct ca_tree_node *node, struct ca_tree_node *next)
{
	if (!node->parent)
		tree->root = next;
	else
		node->parent->child[side_of(node)] = next;
	if (next)
		next->parent = node->parent;
}

/* The child on the other side comes up, `node` goes down to `side`. Returns the new top. */
static struct ca_tree_node *
rotate(struct ca_tree *tree, struct ca_tree_node *node, int side)
{
	struct ca_tree_node *top = node->child[!side];
	struct ca_tree_node *inner = top->child[side];

	replace(tree, node, top);
	top->child[side] = node;
	node->parent = top;
	node->child[!side] = inner;
	if (inner)
		inner->parent = node;
	height_update(node);
	height_update(top);
	return top;
}

/* The child on the heavy side comes up, or one of its. Returns the new top. */
static struct ca_tree_node *
rotate_up(struct ca_tree *tree, struct ca_tree_node *node, int heavy)
{
	struct ca_tree_node *child = node->child[heavy];

	if (height(child->child[!heavy]) > height(child->child[heavy]))
		rotate(tree, child, heavy);
	return rotate(tree, node, !heavy);
}

static void
update_heights(struct ca_tree *tree, struct ca_tree_node *node)
{
	for (; node; node = node->parent) {
		int lower = height(node->child[0]), upper = height(node->child[1]);
		int lean = upper - lower, was = node->height;

		if (lean >= -1 && lean <= 1)
			node->height = (upper > lower ? upper : lower) + 1;
		else
			node = rotate_up(tree, node, lean > 0);
		if (node->height == was)
			return;
	}
}

static bool
less(uint64_t key, uint64_t subkey, const struct ca_tree_node *node)
{
	return key < node->key || (key == node->key && subkey < node->subkey);
}

void
ca_tree_insert(struct ca_tree *tree, struct ca_tree_node *node, uint64_t key, uint64_t subkey)
{
	struct ca_tree_node *parent = NULL, *at = tree->root;
	int side = 0;

	while (at) {
		parent = at;
		side = !less(key, subkey, at);
		at = at->child[side];
	}
	node->parent = parent;
	node->child[0] = node->child[1] = NULL;
	node->key = key;
	node->subkey = subkey;
	node->height = 1;
	if (parent)
		parent->child[side] = node;
	else
		tree->root = node;
	update_heights(tree, parent);
}

static struct ca_tree_node *
edge(struct ca_tree_node *node, int side)
{
	while (node && node->child[side])
		node = node->child[side];
	return node;
}

/* Gives `node`, which has two children, the place-holder `heir`, its successor.
 * Returns where to rebalance. */
static struct ca_tree_node *
inherit(struct ca_tree *tree, struct ca_tree_node *node, struct ca_tree_node *heir)
{
	struct ca_tree_node *start = heir->parent;

	if (start == node) {
		start = heir;
	} else {
		replace(tree, heir, heir->child[1]);
		heir->child[1] = node->child[1];
		heir->child[1]->parent = heir;
	}
	heir->child[0] = node->child[0];
	heir->child[0]->parent = heir;
	heir->height = node->height;
	replace(tree, node, heir);
	return start;
}

void
ca_tree_remove(struct ca_tree *tree, struct ca_tree_node *node)
{
	struct ca_tree_node *start = node->parent;

	if (!node->height)
		return;
	if (node->child[0] && node->child[1])
		start = inherit(tree, node, edge(node->child[1], 0));
	else
		replace(tree, node, node->child[0] ? node->child[0] : node->child[1]);
	node->height = 0;
	update_heights(tree, start);
}

/* The node before (side 0) or behind (1) in order. */
static struct ca_tree_node *
adjacent(const struct ca_tree_node *node, int side)
{
	if (node->child[side])
		return edge(node->child[side], !side);
	while (node->parent && side_of(node) == side)
		node = node->parent;
	return node->parent;
}

void
ca_tree_update(struct ca_tree *tree, struct ca_tree_node *node, uint64_t key, uint64_t subkey)
{
	struct ca_tree_node *before, *behind;

	if (!node->height) {
		ca_tree_insert(tree, node, key, subkey);
		return;
	}
	before = adjacent(node, 0);
	behind = adjacent(node, 1);
	if ((before && less(key, subkey, before)) || (behind && !less(key, subkey, behind))) {
		ca_tree_remove(tree, node);
		ca_tree_insert(tree, node, key, subkey);
		return;
	}
	node->key = key;
	node->subkey = subkey;
}

struct ca_tree_node *
ca_tree_at_least(const struct ca_tree *tree, uint64_t key, uint64_t subkey)
{
	struct ca_tree_node *at = tree->root, *best = NULL;

	while (at) {
		bool fits = at->key > key || (at->key == key && at->subkey >= subkey);

		if (fits)
			best = at;
		at = at->child[!fits];
	}
	return best;
}

struct ca_tree_node *
ca_tree_at_most(const struct ca_tree *tree, uint64_t key)
{
	struct ca_tree_node *at = tree->root, *best = NULL;

	while (at) {
		bool fits = at->key <= key;

		if (fits)
			best = at;
		at = at->child[fits];
	}
	return best;
}

struct ca_tree_node *
ca_tree_first(const struct ca_tree *tree)
{
	return edge(tree->root, 0);
}

struct ca_tree_node *
ca_tree_last(const struct ca_tree *tree)
{
	return edge(tree->root, 1);
}

struct ca_tree_node *
ca_tree_next(const struct ca_tree_node *node)
{
	return adjacent(node, 1);
}
