/* SPDX-License-Identifier: MIT */
/* Handle tables and vector clocks, below the entry points. */
#include "tests/unit/sim/fixture.h"
#include "tests/sim/engine/internal.h"

struct thing {
	struct sim_handle handle;
	int value;
};

static void
test_slab(void **state)
{
	struct sim_slab slab;
	struct thing *a, *b, *c;
	int local;

	assert_int_equal(sim_slab_open(&slab, sizeof(struct thing), 2), 0);
	assert_null(sim_slab_find(&slab, slab.base));
	a = sim_slab_get(&slab);
	b = sim_slab_get(&slab);
	assert_null(sim_slab_get(&slab));
	assert_ptr_equal(sim_slab_find(&slab, a), a);
	assert_null(sim_slab_find(&slab, (char *)a + 1));
	assert_null(sim_slab_find(&slab, b + 1));
	assert_null(sim_slab_find(&slab, slab.base - sizeof(*a)));
	assert_null(sim_slab_find(&slab, &local));
	assert_null(sim_slab_find(&slab, NULL));
	a->value = 5;
	sim_slab_put(&slab, a);
	assert_null(sim_slab_find(&slab, a));
	c = sim_slab_get(&slab);
	assert_ptr_equal(c, a);
	assert_int_equal(c->value, 0);
	sim_slab_close(&slab);
}

static void
test_clocks(void **state)
{
	struct sim_vc a = { 0 }, b = { 0 };

	assert_int_equal(sim_vc_get(&a, 1000), 0);
	sim_vc_set(&a, 3, 7);
	sim_vc_set(&b, 1, 2);
	sim_vc_set(&b, 3, 4);
	sim_vc_join(&b, &a);
	assert_int_equal(sim_vc_get(&b, 3), 7);
	assert_int_equal(sim_vc_get(&b, 1), 2);
	assert_int_equal(sim_vc_get(&a, 1), 0);
	sim_vc_copy(&b, &a);
	assert_int_equal(sim_vc_get(&b, 1), 0);
	sim_vc_set(&a, 100, 1);
	sim_vc_join(&b, &a);
	assert_int_equal(sim_vc_get(&b, 99), 0);
	assert_int_equal(sim_vc_get(&b, 100), 1);
	sim_vc_free(&a);
	sim_vc_free(&b);
}

/* A component is used again only when the host knows all of it. */
static void
test_components(void **state)
{
	uint32_t a, b;

	fixture_manual(state);
	a = sim_component_new_locked();
	sim_component_tick_locked(a);
	sim_component_retire_locked(a);
	b = sim_component_new_locked();
	assert_int_not_equal(a, b);
	sim_vc_set(&sim_g.host, a, 1);
	assert_int_equal(sim_component_new_locked(), a);
	assert_int_equal(sim_component_tick_locked(a), 2);
	sim_stop();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_slab),
		cmocka_unit_test(test_clocks),
		cmocka_unit_test(test_components),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
