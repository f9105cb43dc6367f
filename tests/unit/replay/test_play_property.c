/* SPDX-License-Identifier: MIT */
/*
 * Random traces of many streams against the rule of the replay, kept for every 512 bytes: memory is
 * never two blocks' at a time, and what one stream has freed is another's only a millisecond later
 * or after a phase. The allocator may keep as much as it likes, so that nobody ever waits.
 */
#include "allocator/replay/play.h"
#include "tests/unit/allocator/fixture.h"

enum { EVENTS = 3000, ROUNDS = 30, LIVE_MAX = 60, GRAIN = 512, CELLS = 1 << 17 };
#define SIZE_UNIT ((uint64_t)512 << 10)

struct cell {
	uint64_t address; /* of the piece; 0: unused */
	uint64_t stream, freed_ns;
	unsigned phase;
	bool live;
};

struct reference {
	struct ca_replay_input input;
	struct cell *cells; /* by address, open addressing */
	uint64_t *address;  /* by block */
	unsigned *phase;    /* by event */
	size_t played;      /* events before this one are in the cells */
	uint64_t reused, crossed;
};

static struct cell *
cell_at(struct reference *r, uint64_t address)
{
	size_t at = (address / SIZE_UNIT * UINT64_C(0x9e3779b97f4a7c15)) >> 47;

	while (r->cells[at].address && r->cells[at].address != address)
		at = (at + 1) % CELLS;
	r->cells[at].address = address;
	return &r->cells[at];
}

static void
take(struct reference *r, size_t number, struct cell *cell)
{
	const struct ca_replay_event *event = &r->input.events[number];

	if (cell->live)
		fail_msg("event %zu is given memory of a live block", number);
	r->reused += cell->freed_ns != 0;
	if (cell->freed_ns && cell->stream != event->stream) {
		r->crossed++;
		if (cell->phase == r->phase[number] &&
		    event->time_ns < cell->freed_ns + CA_REPLAY_WORK_NS)
			fail_msg("event %zu has memory of another stream too early", number);
	}
	cell->live = true;
}

static void
leave(struct reference *r, size_t number)
{
	const struct ca_replay_event *event = &r->input.events[number];
	uint64_t base = r->address[r->input.blocks[number]], offset;

	for (offset = 0; offset < event->bytes; offset += SIZE_UNIT) {
		struct cell *cell = cell_at(r, base + offset);

		cell->live = false;
		cell->stream = event->stream;
		cell->freed_ns = event->time_ns;
		cell->phase = r->phase[number];
	}
}

static void
placed(void *arg, size_t number, uint64_t address)
{
	struct reference *r = arg;
	uint64_t offset;

	for (; r->played < number; r->played++)
		if (r->input.events[r->played].kind == CA_REPLAY_FREE)
			leave(r, r->played);
	r->address[r->input.blocks[number]] = address;
	for (offset = 0; offset < r->input.events[number].bytes; offset += SIZE_UNIT)
		take(r, number, cell_at(r, address + offset));
}

static void
random_input(struct ca_replay_input *input, uint64_t *seed, unsigned streams)
{
	uint64_t live[LIVE_MAX], next = 1, now = 1000;
	unsigned n = 0, i;

	for (i = 0; i < EVENTS; i++) {
		uint64_t draw = fixture_random(seed);
		struct ca_replay_event event = { .time_ns = now, .where = i, .id = next };

		now += draw >> 8 & 0xffff;
		if (draw % 512 == 0) {
			event.kind = CA_REPLAY_PHASE;
		} else if (n == LIVE_MAX || (n && draw & 1 << 20)) {
			unsigned which = (unsigned)(draw >> 32) % n;

			event.kind = CA_REPLAY_FREE;
			event.id = live[which];
			live[which] = live[--n];
		} else {
			event.kind = CA_REPLAY_ALLOC;
			event.bytes = SIZE_UNIT * (1 + (draw >> 40) % 24);
			event.stream = (draw >> 50) % streams;
			live[n++] = next++;
		}
		assert_int_equal(ca_replay_input_add(input, &event), 0);
	}
}

static void
play_round(uint64_t *seed, unsigned streams, uint64_t *reused, uint64_t *crossed)
{
	struct ca_config config;
	struct reference r = { .cells = calloc(CELLS, sizeof(*r.cells)) };
	struct ca_replay_setting setting = { .config = &config,
					     .memory_bytes = CA_REPLAY_UNLIMITED,
					     .placed = placed,
					     .placed_arg = &r };
	struct ca_replay_result result;
	struct ca_replay_error error = { .where = 0 };
	unsigned phase = 0;
	size_t i;

	ca_config_default(&config);
	config.reuse_slack_bytes = UINT64_MAX;
	config.give_back_oom = true; /* the reference knows no moments that the host stands by */
	random_input(&r.input, seed, streams);
	assert_int_equal(ca_replay_input_resolve(&r.input, &error), 0);
	r.address = calloc(r.input.n_blocks + 1, sizeof(*r.address));
	r.phase = calloc(r.input.count, sizeof(*r.phase));
	for (i = 0; i < r.input.count; i++)
		r.phase[i] = phase += r.input.events[i].kind == CA_REPLAY_PHASE;
	if (ca_replay_run(&r.input, 0, &setting, &result, &error))
		fail_msg("%s", error.text);
	assert_int_equal(result.stats.host_syncs, 0);
	*reused += r.reused;
	*crossed += r.crossed;
	ca_replay_input_clear(&r.input);
	free(r.cells);
	free(r.address);
	free(r.phase);
}

static void
memory_changes_streams_only_by_the_rule(void **state)
{
	uint64_t seed = fixture_seed(11), reused = 0, crossed = 0;
	unsigned round;

	for (round = 0; round < ROUNDS; round++)
		play_round(&seed, round % 5 == 4 ? 100 : 2 + round % 5, &reused, &crossed);
	/* or nothing was shown */
	assert_true(reused > 10000);
	assert_true(crossed > 1000);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_changes_streams_only_by_the_rule),
	};

	return cmocka_run_group_tests_name("replay-play-property", tests, NULL, NULL);
}
