/* SPDX-License-Identifier: MIT */
/* The sizes of the tables of thunks, for C and for assembly (thunks_*.S). */
#pragma once

/* Those that count (shim/bind/unseen_calls.h). */
#define CA_THUNK_COUNT 256
#define CA_THUNK_BYTES 64

/* Those of registration functions (shim/bind/registrations.h). */
#define CA_REGISTRATION_THUNKS 128
#define CA_REGISTRATION_THUNK_BYTES 16
