/* SPDX-License-Identifier: MIT */
#include "allocator/replay/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ROOM_MIN = 1 << 16 };

static int
read_all(int fd, struct ca_replay_file *file)
{
	size_t room = 0;

	for (;;) {
		ssize_t n;

		if (file->size == room) {
			uint8_t *bigger;

			room = room ? 2 * room : ROOM_MIN;
			bigger = realloc(file->data, room);
			if (!bigger)
				return -ENOMEM;
			file->data = bigger;
		}
		n = read(fd, file->data + file->size, room - file->size);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : 0;
		file->size += (size_t)n;
	}
}

static int
load(int fd, struct ca_replay_file *file)
{
	struct stat status;
	void *data;
	int r;

	if (fstat(fd, &status))
		return -errno;
	if (S_ISREG(status.st_mode) && status.st_size > 0) {
		data = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
		if (data != MAP_FAILED) {
			*file = (struct ca_replay_file){ data, (size_t)status.st_size, true };
			return 0;
		}
	}
	r = read_all(fd, file);
	if (r)
		ca_replay_file_clear(file);
	return r;
}

int
ca_replay_file_read(const char *path, struct ca_replay_file *ret_file)
{
	struct ca_replay_file file = { 0 };
	bool standard = !strcmp(path, "-");
	int fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
	int r = fd < 0 ? -errno : load(fd, &file);

	if (fd >= 0 && !standard)
		close(fd);
	if (!r)
		*ret_file = file;
	return r;
}

void
ca_replay_file_clear(struct ca_replay_file *file)
{
	if (file->mapped)
		munmap(file->data, file->size);
	else
		free(file->data);
	*file = (struct ca_replay_file){ 0 };
}
