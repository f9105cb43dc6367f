/* SPDX-License-Identifier: MIT */
#include "tests/process/order/order.h"
const struct order_case *const order_cases[] = { NULL };
