/* SPDX-License-Identifier: MIT */
/*
 * Physical memory with a handle.
 *
 * What is to be seen at several addresses at once has to be in a file. Each device has one for it
 * (a space of its own, whose units count against the device's capacity), made when it is first
 * wanted. The file is mapped as a whole, too, and that address is how the race oracle knows the
 * bytes, whichever mappings the program makes. A descriptor that is exported is a small file that
 * says whose memory it is; the memory of another process is mapped from that process's file
 * (config.ipc says whether it can be).
 */
#include "tests/sim/engine/vmm.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static const uint64_t magic = 0x737968706d6973; /* "simphys" */

/* The content of a descriptor. */
struct share {
	uint64_t magic;
	int pid, device;
	uint64_t id, offset, n_bytes;
};

/* ---------------------------------------------------------------- life --- */
static int
pages_open(int device)
{
	struct sim_space *pages = &sim_g.device[device].pages;
	int fd;

	if (pages->n_units)
		return 0;
	fd = sim_ipc_file(device + SIM_DEVICES_MAX);
	if (fd < 0)
		fd = memfd_create("simcuda pages", MFD_CLOEXEC);
	if (fd >= 0 && !sim_space_open(pages, sim_total_bytes(device), fd))
		return 0;
	if (fd >= 0)
		close(fd);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

static struct sim_phys *
phys_new(const struct sim_phys_info *info)
{
	struct sim_phys *phys = sim_slab_get(&sim_g.physes);

	if (!phys)
		return NULL;
	phys->info = *info;
	phys->id = ++sim_g.next_mem;
	phys->n_refs = 1;
	return phys;
}

static int
phys_take(struct sim_phys *phys)
{
	struct sim_device *device = &sim_g.device[phys->info.device];
	uint64_t n = phys->info.n_bytes / SIM_UNIT;
	int rc = pages_open(phys->info.device);

	if (!rc)
		rc = sim_space_charge_locked(&device->space, n);
	if (rc)
		return rc;
	rc = sim_space_take_pages_locked(&device->pages, phys, n, &phys->at);
	if (rc) {
		device->space.used -= n;
		return rc;
	}
	phys->fd = device->pages.fd;
	phys->offset = phys->at - device->pages.map;
	return 0;
}

int
sim_phys_create(const struct sim_phys_info *info, sim_phys_handle *ret_handle)
{
	struct sim_phys *phys = NULL;
	int rc;

	if (info->device < 0 || info->device >= sim_device_count())
		return CUDA_ERROR_INVALID_DEVICE;
	if (!info->n_bytes || info->n_bytes % SIM_VMM_GRANULARITY)
		return CUDA_ERROR_INVALID_VALUE;
	sim_lock();
	rc = sim_capture_unsafe_locked();
	if (rc)
		goto out;
	phys = phys_new(info);
	rc = phys ? phys_take(phys) : CUDA_ERROR_OUT_OF_MEMORY;
	if (!rc)
		*ret_handle = (uintptr_t)phys;
	else if (phys)
		sim_slab_put(&sim_g.physes, phys);
out:
	sim_unlock();
	return rc;
}

void
sim_phys_settle_locked(struct sim_phys *phys)
{
	struct sim_device *device = &sim_g.device[phys->info.device];
	uint64_t n = phys->info.n_bytes / SIM_UNIT;

	if (phys->n_refs || phys->n_maps)
		return;
	sim_oracle_forget_locked(phys->at, phys->info.n_bytes);
	if (phys->foreign) {
		munmap((void *)(uintptr_t)phys->at, phys->info.n_bytes);
		close(phys->fd);
	} else {
		sim_space_give_units_locked(&device->pages, phys->at, n);
		device->space.used -= n;
	}
	sim_slab_put(&sim_g.physes, phys);
}

struct sim_phys *
sim_phys_find_locked(sim_phys_handle handle)
{
	struct sim_phys *phys = sim_slab_find(&sim_g.physes, (const void *)(uintptr_t)handle);

	return phys && phys->n_refs ? phys : NULL;
}

/* The same, and says what is wrong. */
static int
resolve(sim_phys_handle handle, struct sim_phys **ret_phys)
{
	*ret_phys = sim_phys_find_locked(handle);
	return *ret_phys ? 0
			 : sim_misuse_locked(CUDA_ERROR_INVALID_VALUE,
					     "0x%llx is no handle of memory", handle);
}

int
sim_phys_release(sim_phys_handle handle)
{
	struct sim_phys *phys;
	int rc;

	sim_lock();
	rc = resolve(handle, &phys);
	if (!rc)
		rc = sim_capture_unsafe_locked();
	if (!rc) {
		phys->n_refs--;
		sim_phys_settle_locked(phys);
	}
	sim_unlock();
	return rc;
}

int
sim_phys_look(sim_phys_handle handle, struct sim_phys_info *ret_info)
{
	struct sim_phys *phys;
	int rc;

	sim_lock();
	rc = resolve(handle, &phys);
	if (!rc)
		*ret_info = phys->info;
	sim_unlock();
	return rc;
}

/* --------------------------------------------------------------- shares --- */
static int
share_write(const struct share *share, int *ret_fd)
{
	int fd = memfd_create("simcuda memory", MFD_CLOEXEC);

	if (fd < 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (write(fd, share, sizeof(*share)) != (ssize_t)sizeof(*share)) {
		close(fd);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*ret_fd = fd;
	return 0;
}

int
sim_phys_export(sim_phys_handle handle, int *ret_fd)
{
	struct sim_phys *phys;
	int rc;

	sim_lock();
	rc = resolve(handle, &phys);
	if (!rc && (!phys->info.handle_types || phys->foreign))
		rc = sim_misuse_locked(CUDA_ERROR_INVALID_VALUE, "memory that cannot be exported");
	if (!rc)
		rc = share_write(&(struct share){ magic, (int)getpid(), phys->info.device, phys->id,
						  phys->offset, phys->info.n_bytes },
				 ret_fd);
	sim_unlock();
	return rc;
}

int
sim_physes_open_locked(void)
{
	return sim_slab_open(&sim_g.physes, sizeof(struct sim_phys), 1 << 20);
}

void
sim_physes_close_locked(void)
{
	for (size_t i = 0; i < sim_g.physes.n_used; i++) {
		struct sim_phys *phys = (void *)(sim_g.physes.base + i * sim_g.physes.size);

		if (phys->handle.life == SIM_DEAD)
			continue;
		phys->n_refs = 0;
		sim_phys_settle_locked(phys);
	}
}

static struct sim_phys *
phys_by_id(uint64_t id)
{
	for (size_t i = 0; i < sim_g.physes.n_used; i++) {
		struct sim_phys *phys = (void *)(sim_g.physes.base + i * sim_g.physes.size);

		if (phys->handle.life != SIM_DEAD && phys->id == id)
			return phys;
	}
	return NULL;
}

static int
import_foreign(const struct share *share, struct sim_phys **ret_phys)
{
	struct sim_phys_info info = { share->device, share->n_bytes, 1, false, false };
	struct sim_phys *phys;
	void *p;
	int fd = sim_ipc_open_file(share->pid, share->device + SIM_DEVICES_MAX);

	if (fd < 0)
		return CUDA_ERROR_NOT_SUPPORTED;
	p = mmap(NULL, share->n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		 (off_t)share->offset);
	phys = p == MAP_FAILED ? NULL : phys_new(&info);
	if (!phys) {
		close(fd);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	phys->at = (uint64_t)(uintptr_t)p;
	phys->fd = fd;
	phys->offset = share->offset;
	phys->foreign = true;
	*ret_phys = phys;
	return 0;
}

int
sim_phys_import(int fd, sim_phys_handle *ret_handle)
{
	struct sim_phys *phys = NULL;
	struct share share = { 0 };
	int rc = 0;

	sim_lock();
	if (pread(fd, &share, sizeof(share), 0) != (ssize_t)sizeof(share) || share.magic != magic ||
	    share.device < 0 || share.device >= sim_g.config.n_devices || !share.n_bytes) {
		rc = sim_misuse_locked(CUDA_ERROR_INVALID_VALUE, "not the descriptor of memory");
		goto out;
	}
	if (share.pid != (int)getpid()) {
		rc = import_foreign(&share, &phys);
		goto out;
	}
	phys = phys_by_id(share.id);
	if (phys)
		phys->n_refs++;
	else
		rc = sim_misuse_locked(CUDA_ERROR_INVALID_VALUE, "the memory has gone");
out:
	if (!rc)
		*ret_handle = (uintptr_t)phys;
	sim_unlock();
	return rc;
}
