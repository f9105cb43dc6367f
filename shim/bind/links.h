/* SPDX-License-Identifier: MIT */
/*
 * Registration functions (registrations.def), and functions of the driver that cuda_names.def does
 * not list, that an object calls by a direct link: the words by which it calls them are made to
 * name our thunks.
 *
 * We export none of these names: a weak reference, or dlsym(RTLD_DEFAULT), must not find what is
 * not there. So the references of the loaded objects are followed instead, once a library of that
 * kind is loaded or an object is linked to such a function of the driver, each time that something
 * was loaded since.
 */
#pragma once

#include <stdint.h>

/*
 * Follows what was loaded since the last time; `generation` is ca_object_generation() of now. An
 * object that cannot be followed is a ca_registration_miss, or a look-up that is counted
 * (shim/bind/unseen_calls.h). Early, thread-safe, keeps errno; where there is a word to change it
 * may wait for a dlopen in another thread to end, as dlsym does.
 */
void ca_links_follow(uint64_t generation);
/* In our constructor, where what was loaded with the program is relocated: the same for functions
 * of the driver, of which the program may copy an address before its first call of the driver. */
void ca_links_follow_at_start(void);
