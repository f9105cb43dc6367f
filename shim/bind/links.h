/* SPDX-License-Identifier: MIT */
/*
 * Registration functions (registrations.def) that an object calls by a direct link: the words by
 * which it calls them are made to name our thunks.
 *
 * We export none of these names: a weak reference, or dlsym(RTLD_DEFAULT), must not find what is
 * not there. So the references of the loaded objects are followed instead, once a library of that
 * kind is loaded, each time that something was loaded since.
 */
#pragma once

#include <stdint.h>

/*
 * Follows what was loaded since the last time; `generation` is ca_object_generation() of now. An
 * object that cannot be followed is a ca_registration_miss. Early, thread-safe, keeps errno; may
 * wait for a dlopen in another thread to end, as dlsym does.
 */
void ca_links_follow(uint64_t generation);
