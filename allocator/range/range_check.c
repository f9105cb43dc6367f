/* SPDX-License-Identifier: MIT */
/* Walks all pieces and handles and compares every sum. */
#include "allocator/range/inside.h"
#include "allocator/util/list.h"

struct walked {
	uint64_t mapped, live;
	unsigned leaving;
};

static bool
is_all_mapped(const struct ca_area *area, const struct ca_piece *piece, bool mapped)
{
	uint64_t first = (piece->address - area->base) / CA_RANGE_PAGE,
		 end = (piece->address + piece->bytes - 1 - area->base) / CA_RANGE_PAGE;

	for (uint64_t i = first; i <= end && i < area->n_pages; i++)
		if ((area->pages[i] != NULL) != mapped)
			return false;
	return !mapped || end < area->n_pages;
}

static const char *
piece_check(const struct ca_area *area, const struct ca_piece *piece, struct walked *walked)
{
	const struct ca_piece *next = piece->next;

	if (next && (next->prev != piece || next->address != piece->address + piece->bytes))
		return "pieces do not follow each other";
	if (!piece->bytes || ca_piece_find(area, piece->address) != piece)
		return "a piece is not found by its address";
	if (next && piece->kind == next->kind && piece->user == next->user &&
	    (piece->kind == CA_PIECE_FREE || piece->kind == CA_PIECE_GAP))
		return "neighbours are not one piece";
	if (!is_all_mapped(area, piece,
			   piece->kind == CA_PIECE_LIVE || piece->kind == CA_PIECE_FREE))
		return "a piece is not mapped as its kind says";
	if ((piece->kind != CA_PIECE_LIVE) != (piece->size.height != 0))
		return "a piece is not found by what it is good for";
	walked->live += piece->kind == CA_PIECE_LIVE ? piece->requested : 0;
	walked->leaving += piece->kind == CA_PIECE_LEAVING;
	return NULL;
}

static const char *
handle_check(const struct ca_area *area, const struct ca_handle *handle)
{
	uint64_t end = handle->address + handle->bytes, lives = 0;
	const struct ca_piece *piece = ca_piece_find(area, handle->address);

	for (; piece && piece->address < end; piece = piece->next)
		lives += piece->kind == CA_PIECE_LIVE;
	if (lives != handle->lives)
		return "a handle has lost count of its live pieces";
	if ((handle->lives == 0) != (handle->idle.height != 0))
		return "an idle handle is not found";
	return NULL;
}

static const char *
area_check(const struct ca_area *area, struct walked *walked)
{
	const char *wrong = NULL;

	for (const struct ca_piece *piece = area->first; piece && !wrong; piece = piece->next)
		wrong = piece_check(area, piece, walked);
	for (uint64_t i = 0; i < area->n_pages && !wrong; i++) {
		const struct ca_handle *handle = area->pages[i];

		if (!handle || handle->address != area->base + i * CA_RANGE_PAGE)
			continue;
		walked->mapped += handle->bytes;
		wrong = handle_check(area, handle);
	}
	return wrong;
}

const char *
ca_range_check(const struct ca_range *range)
{
	struct walked walked = { 0 };
	const char *wrong = area_check(&range->area[0], &walked);

	if (!wrong)
		wrong = area_check(&range->area[1], &walked);
	if (!wrong && walked.mapped != range->sums.mapped_bytes)
		wrong = "what is mapped is not counted";
	if (!wrong && walked.live != range->sums.live_bytes)
		wrong = "what is live is not counted";
	if (!wrong && walked.leaving != range->n_leaving)
		wrong = "what is leaving is not counted";
	return wrong;
}
