/* SPDX-License-Identifier: MIT */
/*
 * Areas: bytes in rows and slices of rows. Rows that follow each other without a gap are one longer
 * row to the race oracle and to the copy alike.
 */
#include "tests/sim/engine/internal.h"

#include <string.h>

/* *sum += (n - 1) * step, n >= 1. */
static bool
reach(uint64_t *sum, uint64_t n, uint64_t step)
{
	uint64_t more;

	return !__builtin_mul_overflow(n - 1, step, &more) &&
	       !__builtin_add_overflow(*sum, more, sum);
}

bool
sim_area_span(const struct sim_area *area, uint64_t *ret_n_bytes)
{
	uint64_t n_bytes = area->width;

	if ((area->rows > 1 && area->pitch < n_bytes) ||
	    !reach(&n_bytes, area->rows, area->pitch) ||
	    (area->slices > 1 && area->slice < n_bytes) ||
	    !reach(&n_bytes, area->slices, area->slice) || area->addr + n_bytes < area->addr)
		return false;
	*ret_n_bytes = n_bytes;
	return true;
}

struct sim_area
sim_area_joined(const struct sim_area *area)
{
	struct sim_area joined = *area;

	if (joined.rows == 1 || joined.pitch == joined.width) {
		joined.width *= joined.rows;
		joined.rows = joined.slices;
		joined.pitch = joined.slice;
		joined.slices = 1;
	}
	if (joined.slices == 1 && (joined.rows == 1 || joined.pitch == joined.width))
		return sim_line(joined.addr, joined.width * joined.rows);
	return joined;
}

static void *
row_at(const struct sim_area *area, uint64_t slice, uint64_t row)
{
	return (void *)(uintptr_t)(area->addr + slice * area->slice + row * area->pitch);
}

void
sim_area_copy(const struct sim_area *to, const struct sim_area *from)
{
	for (uint64_t slice = 0; slice < to->slices; slice++)
		for (uint64_t row = 0; row < to->rows; row++)
			memmove(row_at(to, slice, row), row_at(from, slice, row), to->width);
}

static void
row_set(void *row, uint32_t value, uint64_t element_bytes, uint64_t n)
{
	if (element_bytes == 1) {
		memset(row, (int)(value & 0xff), n);
		return;
	}
	for (uint64_t i = 0; i < n; i++) {
		if (element_bytes == 2)
			((uint16_t *)row)[i] = (uint16_t)value;
		else
			((uint32_t *)row)[i] = value;
	}
}

void
sim_area_set(const struct sim_area *area, uint32_t value, uint64_t element_bytes)
{
	for (uint64_t slice = 0; slice < area->slices; slice++)
		for (uint64_t row = 0; row < area->rows; row++)
			row_set(row_at(area, slice, row), value, element_bytes,
				area->width / element_bytes);
}
