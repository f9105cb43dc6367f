/* SPDX-License-Identifier: MIT */
/* The balanced tree against a plain array. */
#include "tests/unit/allocator/fixture.h"

#include "allocator/util/tree.h"

enum { NODES = 300, STEPS = 20000 };

static struct ca_tree_node nodes[NODES];

static int
height_check(const struct ca_tree_node *node, const struct ca_tree_node *parent)
{
	int a, b;

	if (!node)
		return 0;
	assert_ptr_equal(node->parent, parent);
	a = height_check(node->child[0], node);
	b = height_check(node->child[1], node);
	assert_true(a - b <= 1 && b - a <= 1);
	assert_int_equal(node->height, (a > b ? a : b) + 1);
	return node->height;
}

static void
compare(const struct ca_tree *tree, uint64_t key, uint64_t subkey)
{
	const struct ca_tree_node *least = NULL, *most = NULL, *found;
	int i;

	for (i = 0; i < NODES; i++) {
		const struct ca_tree_node *n = &nodes[i];

		if (!n->height)
			continue;
		if ((n->key > key || (n->key == key && n->subkey >= subkey)) &&
		    (!least || n->key < least->key ||
		     (n->key == least->key && n->subkey < least->subkey)))
			least = n;
		if (n->key <= key && (!most || n->key > most->key ||
				      (n->key == most->key && n->subkey > most->subkey)))
			most = n;
	}
	found = ca_tree_at_least(tree, key, subkey);
	assert_ptr_equal(found, least);
	assert_ptr_equal(ca_tree_at_most(tree, key), most);
}

static void
test_random(void **state)
{
	struct ca_tree tree = { 0 };
	uint64_t seed = fixture_seed(88172645463325252u);
	int step, inside = 0;

	memset(nodes, 0, sizeof(nodes));
	for (step = 0; step < STEPS; step++) {
		int i = (int)(fixture_random(&seed) % NODES);
		struct ca_tree_node *n;
		int seen = 0;

		if (fixture_random(&seed) % 3 == 0) {
			inside += !nodes[i].height;
			ca_tree_update(&tree, &nodes[i], fixture_random(&seed) % 50, (uint64_t)i);
		} else if (nodes[i].height) {
			ca_tree_remove(&tree, &nodes[i]);
			inside--;
		} else {
			ca_tree_insert(&tree, &nodes[i], fixture_random(&seed) % 50, (uint64_t)i);
			inside++;
		}
		ca_tree_remove(&tree, &(struct ca_tree_node){ 0 }); /* in no tree: harmless */
		height_check(tree.root, NULL);
		for (n = ca_tree_first(&tree); n; n = ca_tree_next(n)) {
			seen++;
			assert_true(!ca_tree_next(n) || n->key < ca_tree_next(n)->key ||
				    (n->key == ca_tree_next(n)->key &&
				     n->subkey < ca_tree_next(n)->subkey));
		}
		assert_int_equal(seen, inside);
		compare(&tree, fixture_random(&seed) % 52, fixture_random(&seed) % NODES);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_random) };

	return cmocka_run_group_tests_name("allocator-tree", tests, NULL, NULL);
}
