/* SPDX-License-Identifier: MIT */
/*
 * PyTorch's native policy with default settings (tests/traces/models/model_torch.c says which),
 * restated on the kinds of structure that PyTorch's own allocator is known to use, so that its time
 * means something: an ordered set of free blocks for each pool, a set of active ones, tables from
 * addresses to blocks in 67 parts, each under a lock of its own, one recursive lock around the
 * rest, a record from `new` for each block, and four counters for each of nine figures, of the
 * whole and of the pool. PyTorch's flat hash tables are std::unordered_* here. What is not here:
 * settings, streams that use another's block, traces, memory that runs out. Each thread has a
 * stream of its own.
 */
#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace
{
constexpr std::size_t mib = std::size_t{ 1 } << 20, grain = 512, small_max = mib,
		      small_segment = 2 * mib, large_segment = 20 * mib, large_min = 10 * mib,
		      large_step = 2 * mib;
constexpr std::size_t n_parts = 67, address_bits = 9; /* the lowest bits are always 0 */

std::atomic<std::uintptr_t> next_stream{ 0x100 };
thread_local const std::uintptr_t stream = next_stream++;

struct block {
	std::uintptr_t stream, address;
	std::size_t bytes, requested;
	bool small, allocated;
	block *previous, *next; /* in the segment */
};

struct by_size {
	bool
	operator()(const block *a, const block *b) const
	{
		return std::tie(a->stream, a->bytes, a->address) <
		       std::tie(b->stream, b->bytes, b->address);
	}
};

struct counter {
	std::int64_t current, peak, added, removed;

	void
	add(std::int64_t amount)
	{
		current += amount;
		peak = std::max(peak, current);
		(amount > 0 ? added : removed) += amount > 0 ? amount : -amount;
	}
};

enum { WHOLE, SMALL, LARGE, N_KINDS };
enum figure {
	ALLOCATIONS,
	SEGMENTS,
	ACTIVE,
	SPLIT,
	ALLOCATED_BYTES,
	RESERVED_BYTES,
	ACTIVE_BYTES,
	SPLIT_BYTES,
	REQUESTED_BYTES,
	N_FIGURES
};

class device
{
      public:
	block *take(std::size_t bytes);
	void give(block *freed);
	std::uint64_t
	reserved_bytes() const
	{
		return counters[RESERVED_BYTES][WHOLE].peak;
	}

      private:
	using pool = std::set<block *, by_size>;

	std::recursive_mutex lock;
	pool small_blocks, large_blocks;
	std::unordered_set<block *> active;
	counter counters[N_FIGURES][N_KINDS] = {};
	std::uintptr_t next_address = small_segment;

	void
	count(figure which, const block *of, std::int64_t amount)
	{
		counters[which][WHOLE].add(amount);
		counters[which][of->small ? SMALL : LARGE].add(amount);
	}

	/* Blocks that are free, but not a whole segment. */
	void
	count_split(const block *of, int sign)
	{
		if (!of->previous && !of->next)
			return;
		count(SPLIT, of, sign);
		count(SPLIT_BYTES, of, sign * static_cast<std::int64_t>(of->bytes));
	}

	void
	count_block(const block *of, int sign)
	{
		std::int64_t bytes = sign * static_cast<std::int64_t>(of->bytes);

		count(ALLOCATIONS, of, sign);
		count(ALLOCATED_BYTES, of, bytes);
		count(ACTIVE, of, sign);
		count(ACTIVE_BYTES, of, bytes);
		count(REQUESTED_BYTES, of, sign * static_cast<std::int64_t>(of->requested));
	}

	pool &
	pool_of(const block *of)
	{
		return of->small ? small_blocks : large_blocks;
	}

	block *find(std::size_t bytes);
	block *new_segment(std::size_t bytes);
	void split(block *from, std::size_t bytes);
	void merge(block *freed, block *neighbour);
};

block *
device::find(std::size_t bytes)
{
	block wanted = { stream, 0, bytes, 0, bytes <= small_max, false, nullptr, nullptr };
	pool &from = pool_of(&wanted);
	auto found = from.lower_bound(&wanted);

	if (found == from.end() || (*found)->stream != stream)
		return nullptr;
	block *best = *found;
	from.erase(found);
	count_split(best, -1);
	return best;
}

block *
device::new_segment(std::size_t bytes)
{
	std::size_t whole = small_segment;

	if (bytes > small_max)
		whole = bytes < large_min ? large_segment
					  : (bytes + large_step - 1) / large_step * large_step;
	block *made = new block{ stream, next_address, whole,  0, bytes <= small_max,
				 false,  nullptr,      nullptr };
	next_address += whole;
	count(SEGMENTS, made, 1);
	count(RESERVED_BYTES, made, static_cast<std::int64_t>(whole));
	return made;
}

void
device::split(block *from, std::size_t bytes)
{
	std::size_t rest = from->bytes - bytes;

	if (from->small ? rest < grain : rest <= small_max)
		return;
	block *upper =
		new block{ from->stream, from->address + bytes, rest, 0, from->small, false, from,
			   from->next };
	if (upper->next)
		upper->next->previous = upper;
	from->next = upper;
	from->bytes = bytes;
	pool_of(upper).insert(upper);
	count_split(upper, 1);
}

block *
device::take(std::size_t requested)
{
	std::size_t bytes = (std::max(requested, std::size_t{ 1 }) + grain - 1) / grain * grain;
	std::lock_guard<std::recursive_mutex> guard(lock);
	block *taken = find(bytes);

	if (!taken)
		taken = new_segment(bytes);
	split(taken, bytes);
	taken->allocated = true;
	taken->requested = requested;
	active.insert(taken);
	count_block(taken, 1);
	return taken;
}

void
device::merge(block *freed, block *neighbour)
{
	if (!neighbour || neighbour->allocated)
		return;
	count_split(neighbour, -1);
	pool_of(neighbour).erase(neighbour);
	if (neighbour == freed->previous) {
		freed->address = neighbour->address;
		freed->previous = neighbour->previous;
		if (freed->previous)
			freed->previous->next = freed;
	} else {
		freed->next = neighbour->next;
		if (freed->next)
			freed->next->previous = freed;
	}
	freed->bytes += neighbour->bytes;
	delete neighbour;
}

void
device::give(block *freed)
{
	std::lock_guard<std::recursive_mutex> guard(lock);

	count_block(freed, -1);
	freed->allocated = false;
	merge(freed, freed->previous);
	merge(freed, freed->next);
	active.erase(freed);
	pool_of(freed).insert(freed);
	count_split(freed, 1);
}

/* Never destroyed: threads may outlive the statics of a library. */
device &only = *new device;

struct alignas(64) part {
	std::mutex lock;
	std::unordered_map<std::uintptr_t, block *> blocks;
};
std::array<part, n_parts> &parts = *new std::array<part, n_parts>;

part &
part_of(std::uintptr_t address)
{
	std::uint64_t mixed = (address >> address_bits) * 0x9e3779b97f4a7c15;

	return parts[(mixed >> 32) % n_parts];
}
} // namespace

EXPORT void *
torch_take(std::size_t bytes)
{
	block *taken = only.take(bytes);
	part &owner = part_of(taken->address);
	std::lock_guard<std::mutex> guard(owner.lock);

	owner.blocks[taken->address] = taken;
	return reinterpret_cast<void *>(taken->address);
}

EXPORT void
torch_give(void *address)
{
	part &owner = part_of(reinterpret_cast<std::uintptr_t>(address));
	block *freed;

	{
		std::lock_guard<std::mutex> guard(owner.lock);
		auto found = owner.blocks.find(reinterpret_cast<std::uintptr_t>(address));

		freed = found->second;
		owner.blocks.erase(found);
	}
	only.give(freed);
}

/* For the test that compares this with the model. */
EXPORT std::uint64_t
torch_reserved_bytes(void)
{
	return only.reserved_bytes();
}
