/* SPDX-License-Identifier: MIT */
/* The size of the table of registration thunks, for C and for assembly. */
#pragma once

#define CA_REGISTRATION_THUNKS 128
#define CA_REGISTRATION_THUNK_BYTES 16
