/* SPDX-License-Identifier: MIT */
/* The answer to a look-up of a registration function (shim/bind/registrations.h). */
#pragma once

#include "shim/bind/registrations.h"

/* dlsym (`version` NULL) or dlvsym, called from `caller`. 0: as without us. Early, keeps errno. */
uintptr_t ca_route_registration(enum ca_registration which, void *handle, const char *version,
				uintptr_t caller);
