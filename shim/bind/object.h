/* SPDX-License-Identifier: MIT */
/*
 * The loaded ELF objects, read directly: which object holds an address, and what an object defines.
 *
 * Nothing here calls dlopen, dlsym, malloc or stdio, so it may run inside dlsym and inside a
 * constructor. The loader's own lock is held while a visitor runs (dl_iterate_phdr); a visitor must
 * not keep the object, its strings or its symbols.
 */
#pragma once

#include <link.h>
#include <stdbool.h>
#include <stdint.h>

struct ca_object {
	uintptr_t base;          /* load bias, added to every address in the file */
	const char *soname;      /* DT_SONAME, or "" */
	const char *path;        /* as the loader opened it; "" for the program */
	const ElfW(Phdr) * phdr; /* program headers */
	unsigned phdr_count;
	const ElfW(Dyn) * dynamic;
	const ElfW(Sym) * symbols;
	const char *strings;
	const uint32_t *gnu_hash;  /* NULL: none */
	const uint32_t *sysv_hash; /* NULL: none */
};

/* Called for each object in load order, which is global scope order for those present at start.
 * true: stop. */
typedef bool ca_object_visit(const struct ca_object *object, void *arg);
/* True if a visitor stopped the walk. */
bool ca_object_walk(ca_object_visit *visit, void *arg);

/* Advances whenever an object is loaded or unloaded. */
uint64_t ca_object_generation(void);
struct ca_object_counts {
	uint64_t loads; /* so far */
	uint64_t there; /* the objects of a walk; a new one comes last */
};
struct ca_object_counts ca_object_counts(void);

bool ca_object_holds(const struct ca_object *object, uintptr_t address);
/* A CUDA driver by its soname: libcuda.so.N. */
bool ca_object_is_driver(const struct ca_object *object);
/* The run-time address of a value in the dynamic section. */
static inline const void *
ca_object_address(const struct ca_object *object, uintptr_t value)
{
	return (const void *)(value < object->base ? value + object->base : value);
}

/* True if the symbol at `index`, which has the name that is looked for, is meant. */
typedef bool ca_object_match(const struct ca_object *object, uint32_t index, void *arg);
/* Index in `symbols` of a defined symbol that `match` (NULL: any) takes; 0 if there is none. */
uint32_t ca_object_find(const struct ca_object *object, const char *name, ca_object_match *match,
			void *arg);
/* Address of a defined symbol, 0 if there is none; *ret_type (may be NULL) receives STT_*. */
uintptr_t ca_object_symbol(const struct ca_object *object, const char *name, unsigned *ret_type);

/* True if a CUDA driver holds the address. */
bool ca_object_driver_holds(uintptr_t address);
/* True if a CUDA driver defines the name, at `address` unless that is 0 (or STT_GNU_IFUNC is the
 * type); *ret_type receives STT_*. */
bool ca_object_driver_defines(const char *name, uintptr_t address, unsigned *ret_type);
