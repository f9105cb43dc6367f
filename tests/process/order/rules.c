/* SPDX-License-Identifier: MIT */
/* The rules of reuse, case by case. Which file: T1, T2 and T4 users, T3 and T10 threads, T3 storms,
 * T5 waits, T6 and T16 captures, T7 finish, T8 and T9 events, T11 to T13 spaces, T14 dead,
 * T17 returns. */
#include "tests/process/order/rules.h"

const struct order_case *const order_cases[] = {
	rules_users,  rules_threads, rules_storms, rules_waits,   rules_captures, rules_finish,
	rules_events, rules_spaces,  rules_dead,   rules_returns, NULL,
};
