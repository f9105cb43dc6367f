/* SPDX-License-Identifier: MIT */
/* Runs every file of a folder through a fuzz target, without a fuzzer: corpus_TARGET FOLDER. A
 * false claim ends the process; the last name printed is the one. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FILE_MAX = 1 << 20 };

static int
is_file(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

static void
run_file(const char *folder, const char *name)
{
	char path[4096];
	uint8_t *data, *exact;
	size_t size;
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	file = fopen(path, "rb");
	data = malloc(FILE_MAX);
	if (!file || !data) {
		perror(path);
		exit(1);
	}
	size = fread(data, 1, FILE_MAX, file);
	fclose(file);
	/* of exactly that size, so that a sanitizer sees a read beyond it */
	exact = malloc(size ? size : 1);
	if (!exact)
		exit(1);
	memcpy(exact, data, size);
	free(data);
	LLVMFuzzerTestOneInput(exact, size);
	free(exact);
}

int
main(int argc, char **argv)
{
	struct dirent **entries = NULL;
	int n = argc == 2 ? scandir(argv[1], &entries, is_file, alphasort) : -1;

	if (n <= 0) {
		fprintf(stderr, "usage: %s FOLDER (with files in it)\n", argv[0]);
		return 2;
	}
	for (int i = 0; i < n; i++) {
		fprintf(stderr, "%s\n", entries[i]->d_name);
		run_file(argv[1], entries[i]->d_name);
		free(entries[i]);
	}
	free(entries);
	printf("%d inputs\n", n);
	return 0;
}
