/* SPDX-License-Identifier: MIT */
/*
 * Random programs. Each block is in the hands of one stream at a time; another stream gets it by
 * an event, or, where both are blocking, by an operation of the legacy stream. TOLD_SEED seeds,
 * TOLD_STEPS says how long.
 */
#include "tests/process/told/told.h"

enum { STREAMS = 5, BLOCKS = 24, TEAM = 3 };

struct held {
	CUdeviceptr memory;
	uint32_t value;
	int stream;
};

struct player {
	uint64_t random;
	CUstream streams[STREAMS];
	struct held blocks[BLOCKS];
	CUevent old; /* recorded a while ago */
};

static uint64_t
number(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 10) : otherwise;
}

static unsigned
rnd(struct player *player, unsigned n)
{
	player->random = player->random * 6364136223846793005u + 1442695040888963407u;
	return (unsigned)(player->random >> 33) % n;
}

static size_t
size_of(struct player *player)
{
	static const size_t sizes[] = { SMALL, SMALL + 512, 100000, MIB, 3 * MIB, PART, BIG };

	return sizes[rnd(player, sizeof(sizes) / sizeof(sizes[0]))];
}

static unsigned
spin_of(struct player *player)
{
	return rnd(player, 4) ? 0 : rnd(player, 400);
}

static void
use(struct player *player, struct held *held)
{
	CUstream stream = player->streams[held->stream];

	order_check(held->memory, held->value, stream);
	held->value = rnd(player, 1 << 20);
	order_fill(held->memory, held->value, spin_of(player), stream);
}

static void
begin_block(struct player *player, struct held *held)
{
	CUstream stream;

	held->stream = (int)rnd(player, STREAMS);
	held->value = rnd(player, 1 << 20);
	stream = player->streams[held->stream];
	held->memory = told_take(size_of(player), stream);
	if (rnd(player, 8)) {
		order_fill(held->memory, held->value, spin_of(player), stream);
		return;
	}
	OK(cuMemFree_v2(held->memory)); /* unused */
	held->memory = 0;
}

static void
end_block(struct player *player, struct held *held)
{
	CUstream stream = player->streams[held->stream];

	if (!rnd(player, 12)) {
		OK(cuStreamSynchronize(stream));
		OK(cuMemFree_v2(held->memory));
	} else {
		told_give(held->memory, stream);
	}
	held->memory = 0;
}

static void
move_block(struct player *player, struct held *held)
{
	int target = (int)rnd(player, STREAMS);
	bool blocking = held->stream % 2 == 0 && target % 2 == 0;

	if (blocking && rnd(player, 4))
		told_give(told_take(SMALL, NULL), NULL); /* the legacy stream orders them */
	else
		told_join(player->streams[held->stream], player->streams[target]);
	held->stream = target;
}

static void
renew_stream(struct player *player)
{
	int i = 2 + (int)rnd(player, STREAMS - 2);

	for (int j = 0; j < BLOCKS; j++)
		if (player->blocks[j].memory && player->blocks[j].stream == i) {
			told_join(player->streams[i], player->streams[1]);
			player->blocks[j].stream = 1;
		}
	OK(cuStreamDestroy_v2(player->streams[i]));
	player->streams[i] = order_stream(i % 2 ? NONBLOCKING : BLOCKING);
}

static void
noise(struct player *player)
{
	CUstream stream = player->streams[rnd(player, STREAMS)];

	switch (rnd(player, 6)) {
	case 0:
		OK(cuStreamSynchronize(stream));
		break;
	case 1:
		OK(cuEventRecord(player->old, stream));
		break;
	case 2:
		OK(cuStreamWaitEvent(stream, player->old, 0));
		break;
	case 3:
		(void)cuStreamQuery(stream);
		break;
	case 4:
		(void)cuEventQuery(player->old);
		break;
	default:
		if (!rnd(player, 10))
			renew_stream(player);
	}
}

static void
step(struct player *player)
{
	struct held *held = &player->blocks[rnd(player, BLOCKS)];

	switch (rnd(player, 8)) {
	case 0:
		noise(player);
		break;
	case 1:
	case 2:
		if (held->memory)
			move_block(player, held);
		break;
	case 3:
	case 4:
	case 5:
		if (held->memory)
			end_block(player, held);
		else
			begin_block(player, held);
		break;
	default:
		if (held->memory)
			use(player, held);
	}
}

/* One thread alone has default streams, too. */
static void
play(int number_of, bool alone)
{
	struct player player = { 0 };
	uint64_t steps = number("TOLD_STEPS", 1500);

	player.random = number("TOLD_SEED", 1) * 977 + (uint64_t)number_of;
	for (int i = 0; i < 10; i++)
		(void)rnd(&player, 2);
	for (int i = 0; i < STREAMS; i++)
		player.streams[i] = order_stream(i % 2 ? NONBLOCKING : BLOCKING);
	if (alone)
		player.streams[0] = NULL;
	player.old = order_event();
	for (uint64_t i = 0; i < steps; i++)
		step(&player);
	for (int i = 0; i < BLOCKS; i++)
		if (player.blocks[i].memory) {
			use(&player, &player.blocks[i]);
			end_block(&player, &player.blocks[i]);
		}
}

static void
random_one(void)
{
	told_start();
	play(0, true);
	order_end();
}

static void
play_in_team(int number_of)
{
	play(number_of, false);
}

static void
random_team(void)
{
	told_start();
	order_threads(TEAM, play_in_team);
	order_end();
}

const struct order_case told_random[] = {
	{ "random_one", random_one },
	{ "random_team", random_team },
	{ 0 },
};
