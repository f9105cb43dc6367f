/* SPDX-License-Identifier: MIT */
/*
 * Prints what cachealloc-replay would play of a trace, as .trc text: replay_events FILE. Blocks are
 * numbered in the order in which they begin, so that recordings of one run compare.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "allocator/replay/file.h"
#include "allocator/replay/input.h"

static void
print_event(const struct ca_replay_input *input, size_t i, uint32_t *names, uint32_t *n_names)
{
	static const char kinds[] = "IAFPSTE";
	const struct ca_replay_event *event = &input->events[i];
	char kind = kinds[event->kind];

	if (kind == 'I' || kind == 'A')
		names[input->blocks[i]] = (*n_names)++;
	if (kind == 'P')
		printf("P\n");
	else if (kind == 'S')
		printf("# work on stream %" PRIu64 "\n", event->stream);
	else if (kind == 'T')
		printf("# a segment of %" PRIu64 "\n", event->bytes);
	else if (kind == 'E')
		printf("# the work on stream %" PRIu64 " was seen finished\n", event->stream);
	else if (kind == 'F')
		printf("F %" PRIu32 "\n", names[input->blocks[i]]);
	else
		printf("%c %" PRIu32 " %" PRIu64 " %" PRIu64 "\n", kind, names[input->blocks[i]],
		       event->bytes, event->stream);
}

int
main(int argc, char **argv)
{
	struct ca_replay_file file = { 0 };
	struct ca_replay_input input;
	struct ca_replay_error error;
	uint32_t *names, n_names = 0;
	size_t i;

	if (argc != 2 || ca_replay_file_read(argv[1], &file)) {
		fprintf(stderr, "usage: replay_events FILE\n");
		return 2;
	}
	if (ca_replay_input_read(file.data, file.size, &input, &error)) {
		fprintf(stderr, "%s\n", error.text);
		return 1;
	}
	names = calloc((size_t)input.n_blocks + 1, sizeof(*names));
	for (i = 0; i < input.count && names; i++)
		print_event(&input, i, names, &n_names);
	free(names);
	ca_replay_input_clear(&input);
	ca_replay_file_clear(&file);
	return 0;
}
