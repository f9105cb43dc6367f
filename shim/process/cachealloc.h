/* SPDX-License-Identifier: MIT */
/*
 * Functions for programs that want them; found with dlsym(RTLD_DEFAULT, ...) or ctypes when the
 * library is preloaded, so that a program needs neither this header nor a link against us.
 *
 * All are thread-safe (cachealloc_check_settings as getenv() is), allocate nothing with malloc, and
 * keep errno.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* "0.1.0". Static storage. */
const char *cachealloc_version(void);
/*
 * Reads the CACHEALLOC_ variables of the environment as they are now, as the first CUDA call of a
 * program would, and writes a line for each that is bad, ended by a newline; terminated and cut at
 * `size` bytes. Returns the length of the whole text; 0: all is well. Nothing takes effect.
 */
size_t cachealloc_check_settings(char *text, size_t size);
/*
 * Reads the file of the site's settings as it is now, and writes a line that it is read, or why it
 * is not, and one for each bad setting in it, each ended by a newline; terminated and cut at `size`
 * bytes. Returns the length of the whole text; 0: there is no such file. Nothing takes effect.
 */
size_t cachealloc_site_conf(char *text, size_t size);
/*
 * Gives cached segments that the device has finished with back to the driver, largest first, until
 * at most `keep_bytes` stay cached; and under async:keep what each default pool keeps beyond that.
 * Returns the bytes given back; 0 while a stream captures, or
 * when nothing is served here. May wait for the device, as cuMemFree does.
 */
uint64_t cachealloc_trim(uint64_t keep_bytes);
/*
 * For torch.cuda.memory.CUDAPluggableAllocator (docs/pytorch-pluggable.md); PyTorch 2.0 or newer.
 * `stream` is a cudaStream_t of `device`, whose primary context is used; NULL: its default stream.
 *
 * malloc: `bytes` bytes for use in `stream` from now on. NULL where `bytes` is 0. When memory runs
 * out std::bad_alloc is thrown where the process has a C++ library, since PyTorch looks at no
 * result; NULL elsewhere. free: NULL is allowed, and so is memory that other streams still work
 * with, if they were recorded, or the library is preloaded. record_stream: `stream` works with the
 * memory, too. empty_cache: unused memory goes back to the driver.
 */
void *cachealloc_torch_malloc(size_t bytes, int device, void *stream);
void cachealloc_torch_free(void *memory, size_t bytes, int device, void *stream);
void cachealloc_torch_record_stream(void *memory, void *stream);
void cachealloc_torch_empty_cache(void);
/*
 * The statistics as JSON (format "stats"), terminated and cut at `size` bytes. Returns the length
 * of the whole text without its terminator, so a result >= size means it was cut; 0 when nothing is
 * served here.
 */
size_t cachealloc_stats_json(char *text, size_t size);
