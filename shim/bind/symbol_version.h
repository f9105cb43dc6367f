/* SPDX-License-Identifier: MIT */
/*
 * Symbol versions, read from the loaded objects.
 */
#pragma once

#include "shim/bind/object.h"

/*
 * The address that the undefined symbol of that index in the object's table would be bound to by
 * the loader: the one loaded object that defines the name in the version that is asked for (or, if
 * none is, in its default version); or the first of several, if that was there at the start of the
 * process, for then it comes first in everybody's scope. 0: nobody defines it; *ret_unclear:
 * several do, and which of them is meant depends on scopes that are not to be seen. In a walk of
 * objects.
 */
uintptr_t ca_version_definition(const struct ca_object *object, uint32_t symbol, bool *ret_unclear);
