/* SPDX-License-Identifier: MIT */
#include "allocator/replay/map.h"
#include "tests/unit/allocator/fixture.h"

#include <errno.h>

enum { KEYS = 512, STEPS = 200000 };

static void
a_map_agrees_with_an_array(void **state)
{
	uint64_t seed = fixture_seed(7);
	struct ca_replay_map map = { 0 };
	bool there[KEYS][2] = { 0 };
	uint32_t value[KEYS][2], found;
	size_t count = 0;
	unsigned i;

	for (i = 0; i < STEPS; i++) {
		uint64_t draw = fixture_random(&seed);
		unsigned key = draw % KEYS, part = draw >> 20 & 1;
		/* addresses: far apart and alike in their low bits */
		uint64_t id = (uint64_t)key << 21;

		if (draw >> 30 & 1) {
			int r = ca_replay_map_add(&map, id, (uint16_t)part, i);

			assert_int_equal(r, there[key][part] ? -EEXIST : 0);
			count += !there[key][part];
			value[key][part] = there[key][part] ? value[key][part] : i;
			there[key][part] = true;
		} else {
			assert_int_equal(ca_replay_map_get(&map, id, (uint16_t)part, &found),
					 there[key][part]);
			if (there[key][part])
				assert_int_equal(found, value[key][part]);
			assert_int_equal(ca_replay_map_take(&map, id, (uint16_t)part, &found),
					 there[key][part]);
			count -= there[key][part];
			there[key][part] = false;
		}
		assert_int_equal(map.count, count);
	}
	assert_true(map.size <= 4096);
	ca_replay_map_clear(&map);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_map_agrees_with_an_array),
	};

	return cmocka_run_group_tests_name("replay-map", tests, NULL, NULL);
}
