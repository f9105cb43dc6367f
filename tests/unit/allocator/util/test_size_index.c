/* SPDX-License-Identifier: MIT */
/* The index of free blocks by size: against a plain array, and how far it looks in a long list. */
#include "tests/unit/allocator/fixture.h"

#include "allocator/util/size_index.h"

enum { NODES = 300, STEPS = 20000, MANY = CA_INDEX_LOOK + CA_INDEX_LAST + 10 };

static const uint64_t grain = 512;
static struct ca_index index_;
static struct ca_index_node nodes[NODES];

static uint64_t
random_key(uint64_t *seed)
{
	unsigned log = 9 + (unsigned)(fixture_random(seed) % 34);

	return ((uint64_t)1 << log) + fixture_random(seed) % ((uint64_t)1 << log);
}

/* So few nodes share a class that all of them are looked at. */
static void
compare(uint64_t key)
{
	const struct ca_index_node *least = NULL, *found = ca_index_at_least(&index_, key);
	int i;

	for (i = 0; i < NODES; i++)
		if (nodes[i].key >= key && (!least || nodes[i].key < least->key))
			least = &nodes[i];
	assert_int_equal(found != NULL, least != NULL);
	assert_int_equal(ca_index_any_at_least(&index_, key) != NULL, least != NULL);
	assert_true(!found || found->key == least->key);
}

static uint64_t
walk(void)
{
	const struct ca_index_node *node;
	uint64_t seen = 0, above = 0;

	for (node = ca_index_first(&index_); node; node = ca_index_next(&index_, node)) {
		seen++;
		assert_true(node->key > 0 && node->key >= above);
		assert_true(!node->next || node->next->prev == node);
		above = node->key;
	}
	node = ca_index_last(&index_);
	assert_int_equal(node != NULL, seen != 0);
	assert_true(!node || node->key == above);
	assert_int_equal(ca_index_is_empty(&index_), !seen);
	return seen;
}

static void
test_random(void **state)
{
	uint64_t seed = fixture_seed(88172645463325252u), inside = 0;
	int step;

	memset(nodes, 0, sizeof(nodes));
	ca_index_init(&index_);
	for (step = 0; step < STEPS; step++) {
		struct ca_index_node *node = &nodes[fixture_random(&seed) % NODES];
		bool was = node->key != 0;

		if (was && fixture_random(&seed) % 3 == 0) {
			ca_index_remove(&index_, node);
			inside--;
		} else {
			ca_index_set(&index_, node, random_key(&seed));
			inside += !was;
		}
		assert_int_equal(walk(), inside);
		compare(random_key(&seed));
	}
}

static void
test_a_block_that_grows_or_shrinks_stays_in_order(void **state)
{
	struct ca_index_node *first = &nodes[0], *second = &nodes[1];

	memset(nodes, 0, sizeof(nodes));
	ca_index_init(&index_);
	ca_index_set(&index_, first, 4096 * grain);
	ca_index_set(&index_, second, 4100 * grain);
	ca_index_set(&index_, first, 4099 * grain);
	assert_ptr_equal(ca_index_first(&index_), first);
	ca_index_set(&index_, first, 4159 * grain);
	assert_ptr_equal(ca_index_first(&index_), second);
	assert_ptr_equal(ca_index_at_least(&index_, 4101 * grain), first);
	ca_index_set(&index_, first, 4160 * grain); /* the next class */
	assert_ptr_equal(ca_index_at_least(&index_, 4160 * grain), first);
	ca_index_set(&index_, first, 4100 * grain); /* the latest of two equal ones */
	assert_ptr_equal(ca_index_at_least(&index_, 4096 * grain), first);
}

/* The segment that goes back to the driver is the largest that there is, not one about as large. */
static void
test_the_last_is_the_largest_of_its_class(void **state)
{
	static struct ca_index_node many[MANY];
	int i;

	memset(many, 0, sizeof(many));
	ca_index_init(&index_);
	assert_null(ca_index_last(&index_));
	for (i = 0; i < MANY; i++)
		ca_index_set(&index_, &many[i], 8192 * grain + grain * (uint64_t)(i % 128));
	assert_int_equal(ca_index_last(&index_)->key, (8192 + 127) * grain);
}

/* Nodes of one class in the order of their list, whose keys grow and are all too small. */
static void
fill(struct ca_index_node *many, uint64_t key)
{
	int i;

	memset(many, 0, MANY * sizeof(*many));
	ca_index_init(&index_);
	for (i = MANY - 1; i >= 0; i--)
		ca_index_set(&index_, &many[i], key - grain);
	for (i = 0; i < MANY - 1; i++)
		assert_ptr_equal(many[i].next, &many[i + 1]);
}

static void
test_a_search_looks_at_so_many_nodes(void **state)
{
	static struct ca_index_node many[MANY], larger;
	const uint64_t key = 4100 * grain;

	fill(many, key);
	assert_null(ca_index_any_at_least(&index_, key));
	many[CA_INDEX_LOOK + CA_INDEX_LAST].key = key; /* just too far behind */
	assert_null(ca_index_at_least(&index_, key));
	assert_ptr_equal(ca_index_any_at_least(&index_, key), &many[CA_INDEX_LOOK + CA_INDEX_LAST]);
	many[CA_INDEX_LOOK + CA_INDEX_LAST - 1].key = key;
	assert_ptr_equal(ca_index_at_least(&index_, key), &many[CA_INDEX_LOOK + CA_INDEX_LAST - 1]);
	many[CA_INDEX_LOOK].key = key;
	larger.key = 0;
	ca_index_set(&index_, &larger, 64 * key); /* as long as there is anything else */
	assert_ptr_equal(ca_index_at_least(&index_, key), &larger);
	assert_ptr_equal(ca_index_any_at_least(&index_, key), &larger);
	many[CA_INDEX_LOOK - 1].key = key;
	assert_ptr_equal(ca_index_at_least(&index_, key), &many[CA_INDEX_LOOK - 1]);
}

static void
test_an_insertion_looks_at_so_many_nodes(void **state)
{
	static struct ca_index_node many[MANY], last;
	const uint64_t key = 4100 * grain;

	fill(many, key);
	last.key = 0;
	ca_index_set(&index_, &last, key);
	assert_ptr_equal(last.prev, &many[CA_INDEX_SORT - 1]);
	ca_index_remove(&index_, &last);
	ca_index_remove(&index_, &last); /* in no index: harmless */
	assert_ptr_equal(many[CA_INDEX_SORT - 1].next, &many[CA_INDEX_SORT]);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_a_block_that_grows_or_shrinks_stays_in_order),
		cmocka_unit_test(test_the_last_is_the_largest_of_its_class),
		cmocka_unit_test(test_a_search_looks_at_so_many_nodes),
		cmocka_unit_test(test_an_insertion_looks_at_so_many_nodes),
	};

	return cmocka_run_group_tests_name("allocator-size_index", tests, NULL, NULL);
}
