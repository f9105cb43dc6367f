/* SPDX-License-Identifier: MIT */
/* What the files of register.c share. */
#pragma once

#include "tests/process/order/order.h"
#include "tests/process/register/nic.h"

extern const struct order_case register_cases[], register_api[], register_roads[];

/* The context's one stream. */
extern CUstream stream;

/* A function of a library opened by its soname, which is not closed. */
void *nic_function(const char *soname, const char *name);
int nic_moves(CUdeviceptr address, int receives);

/* BIG bytes that are the program's again while a kernel of the only stream is to write them. */
CUdeviceptr unfinished(void);
/* The same where there are two streams. */
CUdeviceptr unfinished_beside_another(void);
