/* SPDX-License-Identifier: MIT */
#pragma once

#include "tests/process/order/order.h"

extern const struct order_case rules_users[], rules_threads[], rules_storms[], rules_waits[],
	rules_captures[], rules_finish[], rules_events[], rules_spaces[], rules_dead[],
	rules_returns[];
