/* SPDX-License-Identifier: MIT */
/*
 * Records lie two pages apart: the file's page, at whose end the counts are, and right behind it
 * a page of the process's own with the rest of the structure that they belong to. So a structure
 * is one piece of memory, whether its beginning is in a file or not.
 */
#include "allocator/core/counts_file.h"
#include "allocator/util/yield.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "config/text.h"

enum {
	NAME_MAX_BYTES = 256,
	TRIES = 16,
};

/* Of a file, whatever its name. */
struct identity {
	uint32_t major, minor;
	uint64_t inode;
};

static atomic_flag lock = ATOMIC_FLAG_INIT;
static char name[NAME_MAX_BYTES];
static _Atomic bool present;  /* the file */
static char *base;            /* the first record's page */
static _Atomic unsigned used; /* records */
static size_t page_bytes, header_bytes;
static struct identity file;

static void
acquire(void)
{
	while (atomic_flag_test_and_set_explicit(&lock, memory_order_acquire))
		ca_yield();
}

static void
release(void)
{
	atomic_flag_clear_explicit(&lock, memory_order_release);
}

static char *
record(unsigned number)
{
	return base + 2 * page_bytes * number;
}

/* ---- the file */

/* Not open(), close() and fallocate(): those are cancellation points. */
static int
open_file(const char *path, int flags)
{
	long fd =
		syscall(SYS_openat, AT_FDCWD, path, flags | O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0600);

	return fd < 0 ? -errno : (int)fd;
}

static void
close_file(int fd)
{
	fchmod(fd, 0400);
	syscall(SYS_close, fd);
}

static uint64_t
random_word(void)
{
	struct timespec now = { 0 };
	uint64_t word;

	if (syscall(SYS_getrandom, &word, sizeof(word), 1 /* GRND_NONBLOCK */) == sizeof(word))
		return word;
	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec << 30 ^ (uint64_t)now.tv_nsec;
}

static int
create_in(const char *folder)
{
	int fd = -EEXIST;

	for (unsigned i = 0; fd == -EEXIST && i < TRIES; i++) {
		int length = ca_text_format(name, sizeof(name), "%s/cachealloc-%u-%d-%llx.counts",
					    folder, (unsigned)getuid(), (int)getpid(),
					    (unsigned long long)random_word());

		fd = length < NAME_MAX_BYTES ? open_file(name, O_CREAT | O_EXCL) : -ENAMETOOLONG;
	}
	return fd;
}

/* Allocates what is mapped next, without a signal for a file that is too large. */
static int
grow(int fd, size_t offset, size_t bytes)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_FSIZE, &limit) ||
	    (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < offset + bytes))
		return -EFBIG;
	return syscall(SYS_fallocate, fd, 0, offset, bytes) ? -errno : 0;
}

/* fstat() is a symbol of glibc 2.33. */
static int
identify(int fd, struct identity *ret_identity)
{
	struct statx info;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_INO, &info))
		return -errno;
	*ret_identity = (struct identity){ info.stx_dev_major, info.stx_dev_minor, info.stx_ino };
	return 0;
}

static int
fill(int fd, const char *text)
{
	int r = grow(fd, 0, header_bytes);

	if (!r)
		r = ca_text_write(fd, text, strlen(text));
	if (!r)
		r = identify(fd, &file);
	if (r)
		return r;
	base = mmap(NULL, 2 * page_bytes * CA_COUNTS_RECORDS, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (base == MAP_FAILED)
		return -ENOMEM;
	return 0;
}

int
ca_counts_file_create(const char *folder, const char *text)
{
	int saved = errno, fd, r;

	if (strlen(text) >= CA_COUNTS_HEADER)
		return -EMSGSIZE;
	page_bytes = (size_t)sysconf(_SC_PAGESIZE);
	header_bytes = page_bytes > CA_COUNTS_HEADER ? page_bytes : CA_COUNTS_HEADER;
	atomic_store(&used, 0);
	fd = create_in(folder);
	r = fd < 0 ? fd : fill(fd, text);
	if (fd >= 0) {
		close_file(fd);
		atomic_store(&present, true);
	}
	if (r)
		ca_counts_file_remove();
	errno = saved;
	return r;
}

/* A process that has become another user, or has another root, by now does not reach it: then it
 * is no file of counts any more. */
void
ca_counts_file_remove(void)
{
	int saved = errno;

	if (atomic_exchange(&present, false) && unlink(name) && atomic_load(&used))
		((struct ca_counts_page *)record(0))->number = UINT32_MAX;
	errno = saved;
}

/* ---- records */

/* The program may have put another file under that name; its owner may not write to it any more,
 * but that it is opened for writing is needed. */
static int
open_again(void)
{
	struct identity found = { 0 };
	int fd;

	if (chmod(name, 0600))
		return -errno;
	fd = open_file(name, 0);
	if (fd < 0)
		return fd;
	if (!identify(fd, &found) && found.major == file.major && found.minor == file.minor &&
	    found.inode == file.inode)
		return fd;
	syscall(SYS_close, fd);
	return -ENOENT;
}

static int
map_record(unsigned number)
{
	char *at = record(number);
	size_t offset = header_bytes + page_bytes * number;
	int fd = open_again(), r;

	if (fd < 0)
		return fd;
	r = grow(fd, offset, page_bytes);
	if (!r && mmap(at + page_bytes, page_bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		r = -errno;
	if (!r && mmap(at, page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
		       (off_t)offset) == MAP_FAILED)
		r = -errno;
	close_file(fd);
	return r;
}

static void *
alloc(const char *names, unsigned device, size_t counted, size_t bytes)
{
	unsigned number = atomic_load(&used);
	size_t length = strlen(names) + 1;
	struct ca_counts_page *page;

	if (number == CA_COUNTS_RECORDS || bytes - counted > page_bytes ||
	    sizeof(*page) + length + counted > page_bytes || map_record(number))
		return NULL;
	page = (struct ca_counts_page *)record(number);
	page->device = device;
	page->number = number;
	memcpy(page->names, names, length);
	atomic_signal_fence(memory_order_release); /* before it is a record */
	page->bytes = (uint32_t)counted;
	atomic_store(&used, number + 1);
	return (char *)page + page_bytes - counted;
}

void *
ca_counts_file_alloc(const char *names, unsigned device, size_t counted, size_t bytes)
{
	int saved = errno;
	void *memory;

	if (!atomic_load(&present))
		return NULL;
	acquire();
	memory = alloc(names, device, counted, bytes);
	release();
	if (!memory)
		ca_counts_file_remove(); /* rather no figures than some of them */
	errno = saved;
	return memory;
}

struct ca_counts_page *
ca_counts_file_page(void *memory)
{
	return (struct ca_counts_page *)((uintptr_t)memory & ~(uintptr_t)(page_bytes - 1));
}

/* Only the forking thread is there; nobody reads what the parent has counted. */
void
ca_counts_file_after_fork_child(void)
{
	unsigned count = atomic_exchange(&used, 0);

	atomic_store(&present, false);
	atomic_flag_clear(&lock);
	for (unsigned i = 0; i < count; i++)
		(void)mmap(record(i), page_bytes, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

/* ---- updates
 *
 * The order of stores is the compiler's care only: a process that is killed has done all of them up
 * to one instruction, and a reader of one that runs compares what it read at three times. */

void
ca_counts_update_begin(struct ca_counts_page *page, const void *counts, size_t bytes,
		       const struct ca_counts_page *part, const void *part_counts,
		       size_t part_bytes)
{
	memcpy(page->saved, counts, bytes);
	page->saved_bytes = (uint32_t)bytes;
	page->updated = UINT64_MAX;
	if (part) {
		memcpy(page->saved_part, part_counts, part_bytes);
		page->updated = part->number;
	}
	atomic_store_explicit(&page->updates,
			      atomic_load_explicit(&page->updates, memory_order_relaxed) + 1,
			      memory_order_release);
	atomic_signal_fence(memory_order_seq_cst); /* before what is stored next */
}

void
ca_counts_update_end(struct ca_counts_page *page)
{
	atomic_store_explicit(&page->updates,
			      atomic_load_explicit(&page->updates, memory_order_relaxed) + 1,
			      memory_order_release);
}
