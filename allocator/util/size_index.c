/* SPDX-License-Identifier: MIT */
/*
 * The class of a size is its power of two and the next four bits below: sizes of a class differ by
 * a sixteenth at most. Sizes below 512 bytes share the first.
 */
#include "allocator/util/size_index.h"

#include <stddef.h>
#include <string.h>

enum { SMALLEST_LOG = 9 };

static inline unsigned
class_of(uint64_t key)
{
	unsigned log;

	if (key < (uint64_t)1 << SMALLEST_LOG)
		return 0;
	log = 63 - (unsigned)__builtin_clzll(key);
	return (log - SMALLEST_LOG) << CA_CLASSES_LOG |
	       ((unsigned)(key >> (log - CA_CLASSES_LOG)) & ((1u << CA_CLASSES_LOG) - 1));
}

/* The first class from `class` on that is not empty; CA_CLASSES: none. */
static inline unsigned
taken_from(const struct ca_index *index, unsigned class)
{
	unsigned word = class / 64, words;
	uint64_t bits;

	if (class >= CA_CLASSES)
		return CA_CLASSES;
	bits = index->taken[word] >> class % 64;
	if (bits)
		return class + (unsigned)__builtin_ctzll(bits);
	words = index->words >> word >> 1;
	if (!words)
		return CA_CLASSES;
	word += 1 + (unsigned)__builtin_ctz(words);
	return word * 64 + (unsigned)__builtin_ctzll(index->taken[word]);
}

static struct ca_tree_node *
first_from(const struct ca_index *index, unsigned class)
{
	unsigned taken = taken_from(index, class);
	struct ca_tree_node *node;

	if (taken == CA_CLASSES)
		return NULL;
	node = index->classes[taken].root;
	while (node->child[0])
		node = node->child[0];
	return node;
}

void
ca_index_init(struct ca_index *index)
{
	memset(index, 0, sizeof(*index));
}

/* Most classes have no block, or one: these two cases are done here. */

static inline void
leave(struct ca_index *index, struct ca_tree_node *node)
{
	unsigned class = node->class;
	struct ca_tree *tree = &index->classes[class];

	if (!ca_tree_is_single(tree, node)) {
		ca_tree_remove(tree, node);
		return;
	}
	tree->root = NULL;
	node->height = 0;
	index->taken[class / 64] &= ~((uint64_t)1 << class % 64);
	if (!index->taken[class / 64])
		index->words &= ~(1u << class / 64);
}

static inline void
enter(struct ca_index *index, unsigned class, struct ca_tree_node *node, uint64_t key,
      uint64_t subkey)
{
	struct ca_tree *tree = &index->classes[class];

	node->class = class;
	if (tree->root) {
		ca_tree_insert(tree, node, key, subkey);
		return;
	}
	node->parent = node->child[0] = node->child[1] = NULL;
	node->key = key;
	node->subkey = subkey;
	node->height = 1;
	tree->root = node;
	index->taken[class / 64] |= (uint64_t)1 << class % 64;
	index->words |= 1u << class / 64;
}

void
ca_index_remove_from(struct ca_index *index, struct ca_tree_node *node)
{
	leave(index, node);
}

void
ca_index_set(struct ca_index *index, struct ca_tree_node *node, uint64_t key, uint64_t subkey)
{
	unsigned class = class_of(key);

	if (!node->height) {
		enter(index, class, node, key, subkey);
	} else if (node->class != class) {
		leave(index, node);
		enter(index, class, node, key, subkey);
	} else if (ca_tree_is_single(&index->classes[class], node)) {
		node->key = key;
		node->subkey = subkey;
	} else {
		ca_tree_update(&index->classes[class], node, key, subkey);
	}
}

struct ca_tree_node *
ca_index_at_least(const struct ca_index *index, uint64_t key, uint64_t subkey)
{
	unsigned class = class_of(key);
	struct ca_tree_node *node = index->classes[class].root;

	if (!node)
		return first_from(index, class + 1);
	node = ca_tree_at_least(&index->classes[class], key, subkey);
	return node ? node : first_from(index, class + 1);
}

bool
ca_index_has_about(const struct ca_index *index, uint64_t key)
{
	unsigned class = class_of(key);

	return index->taken[class / 64] >> class % 64 & 1;
}

struct ca_tree_node *
ca_index_first(const struct ca_index *index)
{
	return first_from(index, 0);
}

struct ca_tree_node *
ca_index_last(const struct ca_index *index)
{
	unsigned word;

	if (ca_index_is_empty(index))
		return NULL;
	word = 31 - (unsigned)__builtin_clz(index->words);
	return ca_tree_last(
		&index->classes[word * 64 + 63 - (unsigned)__builtin_clzll(index->taken[word])]);
}

struct ca_tree_node *
ca_index_next(const struct ca_index *index, const struct ca_tree_node *node)
{
	struct ca_tree_node *next = ca_tree_next(node);

	return next ? next : first_from(index, node->class + 1);
}
