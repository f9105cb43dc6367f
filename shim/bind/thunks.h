/* SPDX-License-Identifier: MIT */
/* The size of the table of counting thunks, for C and for assembly. */
#pragma once

#define CA_THUNK_COUNT 256
#define CA_THUNK_BYTES 64
