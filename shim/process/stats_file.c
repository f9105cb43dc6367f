/* SPDX-License-Identifier: MIT */
/*
 * The emitter collects the text on the stack, so that a line or a table reaches its file in as few
 * writes as it can. A statistics file is created once, by its pattern, and reopened by name for
 * each further line: a descriptor kept open could be closed by the program and its number given to
 * a file of the program's.
 */
#include "shim/process/stats_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "allocator/api/stats_text.h"
#include "allocator/core/counts_file.h"
#include "config/log.h"
#include "config/path.h"
#include "config/text.h"
#include "shim/bind/libcuda.h"
#include "shim/bind/scope.h"
#include "shim/bind/unseen_calls.h"
#include "shim/driver/driver_table.h"
#include "allocator/told/told.h"
#include "allocator/util/yield.h"
#include "shim/pinned/pinned.h"
#include "shim/process/counts.h"
#include "shim/process/explain.h"
#include "shim/process/identity.h"
#include "shim/process/introduce.h"
#include "shim/process/site_conf.h"
#include "shim/process/tracing.h"
#include "shim/process/turn.h"
#include "shim/state/process.h"

enum { DEVICES_MAX = 32, NAME_MAX_BYTES = 100, UUID_BYTES = 48 };

struct device_note {
	_Atomic int state; /* 0 unknown, 1 being asked, 2 known */
	char name[NAME_MAX_BYTES];
	char uuid[UUID_BYTES];
};

static const struct ca_config *config;
static struct device_note notes[DEVICES_MAX];
static uint64_t begun_ns;       /* first hooked call */
static _Atomic uint64_t due_ns; /* next interval; 0: none */
static struct ca_turn writing;
static char file[CA_PATH_MAX]; /* the one created; while `writing` is held */
static _Atomic bool refused;   /* to create one; said */
static _Atomic bool started;   /* it was tried before anything was counted */

static uint64_t
now_ns(void)
{
	const struct ca_driver *driver = ca_driver_table();

	return driver->clock_ns(driver->self);
}

static bool
wanted(void)
{
	return config && (config->stats_stderr || config->stats_file[0]);
}

void
ca_dump_after_fork_child(void)
{
	config = NULL;
	file[0] = '\0';
	atomic_store(&refused, false);
	atomic_store(&started, false);
	for (unsigned i = 0; i < DEVICES_MAX; i++)
		atomic_store(&notes[i].state, 0);
	ca_turn_leave(&writing);
}

/* GPU-01234567-89ab-cdef-0123-456789abcdef, as nvidia-smi prints it. */
static void
write_uuid(char *ret_text, const CUuuid *uuid)
{
	static const char digits[] = "0123456789abcdef";
	char *to = ret_text;

	memcpy(to, "GPU-", 4);
	to += 4;
	for (unsigned i = 0; i < sizeof(uuid->bytes); i++) {
		unsigned byte = (unsigned char)uuid->bytes[i];

		if (i == 4 || i == 6 || i == 8 || i == 10)
			*to++ = '-';
		*to++ = digits[byte >> 4];
		*to++ = digits[byte & 15];
	}
	*to = '\0';
}

static int
write_to(void *arg, const char *text, size_t length)
{
	const int *fd = arg;

	return ca_text_write(*fd, text, length);
}

static const char *
known(const struct device_note *note, const char *text)
{
	return atomic_load(&note->state) == 2 && text[0] ? text : NULL;
}

struct values {
	struct ca_stats stats[DEVICES_MAX];
	struct ca_emit_device devices[DEVICES_MAX];
	unsigned count;
};

static void
gather(struct ca_heap *heap, struct values *ret_values)
{
	unsigned count = ca_heap_device_count(heap), pinned = ca_pinned_device_count();

	count = count > pinned ? count : pinned;
	ret_values->count = count < DEVICES_MAX ? count : DEVICES_MAX;
	for (unsigned i = 0; i < ret_values->count; i++) {
		ca_heap_stats(heap, i, &ret_values->stats[i]);
		ca_pinned_stats(i, &ret_values->stats[i]);
		ca_told_device_stats(heap, i, &ret_values->stats[i]);
		if (i == 0) /* a figure of the process */
			ret_values->stats[i].unseen_calls = ca_unseen_calls();
		ret_values->devices[i] = (struct ca_emit_device){
			.index = i,
			.name = known(&notes[i], notes[i].name),
			.uuid = known(&notes[i], notes[i].uuid),
			.stats = &ret_values->stats[i],
		};
	}
}

int
ca_dump_json(struct ca_heap *heap, char *text, size_t size, size_t *ret_length)
{
	struct ca_emit_buffer buffer = { .text = text, .size = size };
	struct ca_identity identity;
	struct ca_emit_process process = { .identity = &identity.emitted,
					   .site_conf = ca_site_conf_path() };
	struct values values;
	int rc;

	gather(heap, &values);
	ca_identity_read(&identity, now_ns() - begun_ns);
	ca_identity_number(&identity);
	rc = ca_emit_stats_json(&process, values.devices, values.count, ca_emit_to_buffer, &buffer);
	if (!rc)
		*ret_length = buffer.length;
	return rc;
}

/* The program may change its folder. */
static void
make_absolute(char path[CA_PATH_MAX])
{
	char whole[CA_PATH_MAX];
	size_t length, rest;

	if (path[0] == '/' || !getcwd(whole, sizeof(whole)))
		return;
	length = strlen(whole);
	rest = sizeof(whole) - length;
	if ((size_t)ca_text_format(whole + length, rest, "/%s", path) < rest)
		memcpy(path, whole, sizeof(whole));
}

/* Not open() and close(): those are cancellation points. */
static int
open_again(int flags)
{
	long fd = syscall(SYS_openat, AT_FDCWD, file,
			  O_RDWR | O_APPEND | O_NOFOLLOW | O_CLOEXEC | flags, 0600);

	return fd < 0 ? -errno : (int)fd;
}

/* Of a file that was moved away, or removed, the next of the same name is made. */
static int
open_file(void)
{
	int fd;

	if (file[0]) {
		fd = open_again(0);
		fd = fd == -ENOENT ? open_again(O_CREAT | O_EXCL) : fd;
		if (fd < 0 && !atomic_exchange(&refused, true))
			ca_warn("CACHEALLOC_STATS: the file '%s' cannot be opened any more: %s "
				"(errno %d)",
				file, ca_log_error_name(-fd), -fd);
		return fd;
	}
	fd = ca_path_open_told("CACHEALLOC_STATS", config->stats_file, file);
	if (fd >= 0) {
		make_absolute(file);
		return fd;
	}
	file[0] = '\0';
	if (!atomic_exchange(&refused, true))
		ca_warn("CACHEALLOC_STATS: no file by the pattern '%s' can be made: %s (errno %d)",
			config->stats_file, ca_log_error_name(-fd), -fd);
	return fd;
}

/* The file is created before anything is counted: a name that cannot be had is told before the
 * work, not after it, and whoever looks for the figures of a killed process has a name to ask for.
 */
static void
start_file(void)
{
	struct ca_identity identity;
	struct ca_emit_process process = { .identity = &identity.emitted,
					   .site_conf = ca_site_conf_path() };
	int fd = open_file();

	if (fd < 0)
		return;
	syscall(SYS_close, fd);
	ca_identity_read(&identity, 0);
	ca_counts_start(file, &process);
}

/* Another thread that comes meanwhile waits: what it counts belongs there, too. */
static void
start_once(void)
{
	while (!ca_turn_take(&writing))
		ca_yield();
	if (!atomic_load(&started))
		start_file();
	atomic_store(&started, true);
	ca_turn_leave(&writing);
}

void
ca_dump_note_device(CUdevice device)
{
	const struct ca_real *real = ca_real();
	struct device_note *note;
	CUuuid uuid;
	int unknown = 0;

	if (!(wanted() || ca_tracing_tracer || ca_log_enabled(CA_LOG_INFO)) || !real ||
	    device < 0 || device >= DEVICES_MAX)
		return;
	if (config->stats_file[0] && !atomic_load(&started))
		start_once();
	note = &notes[device];
	if (!atomic_compare_exchange_strong(&note->state, &unknown, 1))
		return;
	if (!real->cuDeviceGetName ||
	    CA_INSIDE(real->cuDeviceGetName(note->name, NAME_MAX_BYTES, device)))
		note->name[0] = '\0';
	note->name[NAME_MAX_BYTES - 1] = '\0';
	if (real->cuDeviceGetUuid_v2 &&
	    CA_INSIDE(real->cuDeviceGetUuid_v2(&uuid, device)) == CUDA_SUCCESS)
		write_uuid(note->uuid, &uuid);
	else
		note->uuid[0] = '\0';
	atomic_store(&note->state, 2);
	if (ca_log_enabled(CA_LOG_INFO))
		ca_introduce_device(device, note->name, note->uuid);
	ca_tracing_note_device(device, note->name);
	ca_counts_note_device((unsigned)device, note->name, note->uuid);
}

void
ca_dump_start(const struct ca_config *one)
{
	config = one;
	begun_ns = now_ns();
	atomic_store(&due_ns,
		     wanted() && one->stats_interval_ns ? begun_ns + one->stats_interval_ns : 0);
}

static bool
is_json(const char *pattern)
{
	size_t length = strlen(pattern);

	return length >= 5 && memcmp(pattern + length - 5, ".json", 5) == 0;
}

/* The disk may have been full in the middle of the last one. */
static void
end_line(int fd)
{
	off_t size = lseek(fd, 0, SEEK_END);
	char last = '\n';

	if (size > 0 && syscall(SYS_pread64, fd, &last, 1, size - 1) == 1 && last != '\n')
		(void)ca_text_write(fd, "\n", 1);
}

static bool
write_file(const struct ca_emit_process *process, const struct values *values)
{
	int fd = open_file();
	int rc;

	if (fd < 0)
		return false;
	end_line(fd);
	if (is_json(config->stats_file))
		rc = ca_emit_stats_json(process, values->devices, values->count, write_to, &fd);
	else
		rc = ca_emit_stats_table(process, values->devices, values->count, write_to, &fd);
	if (rc)
		ca_warn("CACHEALLOC_STATS: the file '%s' is incomplete: %s (errno %d)", file,
			ca_log_error_name(-rc), -rc);
	syscall(SYS_close, fd);
	return !rc;
}

/* False: the file does not have them. */
static bool
write_all(struct ca_heap *heap)
{
	struct values values;
	struct ca_identity identity;
	struct ca_emit_process process = {
		.identity = &identity.emitted,
		.program = program_invocation_short_name,
		.pid = getpid(),
		.elapsed_ns = now_ns() - begun_ns,
		.site_conf = ca_site_conf_path(),
	};
	int fd = STDERR_FILENO;

	gather(heap, &values);
	ca_identity_read(&identity, process.elapsed_ns);
	ca_identity_number(&identity);
	ca_explain(config, &process);
	if (config->stats_stderr)
		(void)ca_emit_stats_table(&process, values.devices, values.count, write_to, &fd);
	return !config->stats_file[0] || write_file(&process, &values);
}

static bool
write_once(struct ca_heap *heap, bool last)
{
	bool written = false;
	CA_KEEP_ERRNO;

	if (last ? ca_turn_await(&writing) : ca_turn_take(&writing)) {
		written = write_all(heap);
		ca_turn_leave(&writing);
	}
	return written;
}

void
ca_dump_if_due(struct ca_heap *heap)
{
	uint64_t due = atomic_load_explicit(&due_ns, memory_order_relaxed);
	uint64_t now;

	if (!due || (now = now_ns()) < due)
		return;
	if (atomic_compare_exchange_strong(&due_ns, &due, now + config->stats_interval_ns))
		write_once(heap, false);
}

void
ca_dump_final(struct ca_heap *heap)
{
	char reason[256];

	if (wanted() && write_once(heap, true))
		ca_counts_file_remove();
	if (ca_log_enabled(CA_LOG_DEBUG)) {
		if (ca_heap_check(heap, reason, sizeof(reason)))
			ca_error("the records are inconsistent: %s", reason);
		else
			ca_debug("at exit every invariant of the records holds");
	}
}
