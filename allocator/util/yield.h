/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The calling thread waits a moment for another one, which needs a few instructions more. It comes
 * to sleep, of so many calls in one: of a higher real-time priority than the other's, it would keep
 * the processor from it otherwise. Keeps errno; no cancellation point.
 */
void ca_yield(void);
