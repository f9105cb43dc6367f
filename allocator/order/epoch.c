/* SPDX-License-Identifier: MIT */
/*
 * Stamps, bounds, and the users of what is freed.
 *
 * The epoch moves when an allocation is born after a stamp, and when a bound is taken. A submission
 * stamps after the real call has returned; a thread that skips the stamp saw `last` at the epoch,
 * put there by another that had set the stream's active bit before. The bit must therefore never be
 * clear while `last` is above `done`: it is cleared only under the order lock, under which users
 * are looked for, and set again unless no thread is inside ca_submit_stamp and `last` is still not
 * above `done`.
 */
#include "allocator/order/internal.h"

#include "config/mutant.h"

static uint64_t
active_bit(const struct ca_stream_record *record)
{
	return (uint64_t)1 << record->index % 64;
}

static _Atomic uint64_t *
active_word(struct ca_stream_record *record)
{
	return &ca_record_order(record)->active[record->index / 64];
}

/* The present epoch has a stamp. */
static void
make_odd(struct ca_order_words *words)
{
	if (!(atomic_load(&words->epoch) & 1))
		atomic_fetch_or(&words->epoch, 1);
}

uint64_t
ca_order_advance(struct ca_order *order)
{
	_Atomic uint64_t *word = &order->words.epoch;
	uint64_t epoch = atomic_load(word);

	while (!atomic_compare_exchange_weak(word, &epoch, (epoch | 1) + 1))
		;
	return epoch | 1;
}

static inline void
stamp(struct ca_stream *stream, uint64_t epoch)
{
	make_odd(stream->words); /* before anybody can see the stamp, and skip his own */
	ca_raise(&stream->last, epoch | 1);
	atomic_fetch_sub(&stream->stamping, 1);
}

/* Traced, before anybody can see the stamp. */
static CA_APART void
stamp_first_traced(struct ca_stream *stream, uint64_t epoch)
{
	ca_trace_work(ca_record(stream));
	stamp(stream, epoch);
}

void
ca_submit_stamp(struct ca_stream *stream, uint64_t epoch)
{
	struct ca_stream_record *record = ca_record(stream);
	_Atomic uint64_t *active = active_word(record);
	uint64_t bit = active_bit(record);

	atomic_fetch_add(&stream->stamping, 1);
	if (!(atomic_load(active) & bit)) {
		atomic_fetch_or(active, bit);
		if (__builtin_expect(ca_record_order(record)->traced, 0)) {
			stamp_first_traced(stream, epoch);
			return;
		}
	}
	stamp(stream, epoch);
}

void
ca_record_settle_ordered(struct ca_stream_record *record)
{
	if (ca_record_is_busy(record) || atomic_load(&record->stream.stamping) ||
	    !(atomic_load(active_word(record)) & active_bit(record)))
		return;
	atomic_fetch_and(active_word(record), ~active_bit(record));
	if (atomic_load(&record->stream.stamping) || ca_record_is_busy(record))
		atomic_fetch_or(active_word(record), active_bit(record));
	else if (record->wanted <= atomic_load(&record->done))
		/* what armed it is over, and whatever will needs the lock */
		atomic_store(&record->stream.armed, 0);
}

struct ca_stream_record *
ca_order_next_active_ordered(struct ca_order *order, unsigned *at)
{
	unsigned n = atomic_load(&order->n_streams);

	for (; *at < n; ++*at) {
		uint64_t word = atomic_load(&order->active[*at / 64]) >> *at % 64;

		if (!word) {
			*at |= 63;
			continue;
		}
		*at += (unsigned)__builtin_ctzll(word);
		if (ca_record_is_busy(order->streams[*at]))
			return order->streams[*at];
	}
	return NULL;
}

uint64_t
ca_order_birth_after_stamp(struct ca_order *order, uint64_t epoch)
{
	_Atomic uint64_t *word = &order->words.epoch;

	while (epoch & 1)
		if (atomic_compare_exchange_weak(word, &epoch, epoch + 1))
			return epoch + 1;
	return epoch;
}

/* ---- users */

bool
ca_users_remove_finished(struct ca_users *users)
{
	unsigned i;

	for (i = 0; i < users->n;)
		if (ca_user_is_done(&users->user[i]))
			users->user[i] = users->user[--users->n];
		else
			i++;
	return !users->n && !users->context;
}

/* Only an inherited user, of which there are few, can be the stream's already. */
static void
candidates_add(struct ca_candidates *all, unsigned inherited, struct ca_stream *stream,
	       uint64_t stamp)
{
	unsigned i;

	for (i = 0; i < inherited; i++)
		if (all->user[i].stream == stream) {
			if (all->user[i].stamp < stamp)
				all->user[i].stamp = stamp;
			return;
		}
	if (all->n == CA_CANDIDATES_MAX)
		all->more = true;
	else
		all->user[all->n++] = (struct ca_user){ stream, stamp };
}

bool
ca_record_needs_context(struct ca_stream_record *record)
{
	if (atomic_load(&record->lost))
		return true;
	return record->kind == CA_STREAM_PER_THREAD && !CA_MUTANT(PER_THREAD_MARK) &&
	       !atomic_load(&record->closed) && record->thread != ca_order_thread();
}

void
ca_users_collect_ordered(struct ca_order *order, uint64_t birth, struct ca_candidates *all)
{
	struct ca_stream_record *record;
	unsigned inherited = all->n, at;

	for (at = 0; (record = ca_order_next_active_ordered(order, &at)); at++) {
		uint64_t last = atomic_load(&record->stream.last);

		if (!ca_order_is_user(order, record))
			continue;
		if (last >= birth || atomic_load(&record->hazard) > atomic_load(&record->done))
			candidates_add(all, inherited, &record->stream, last);
	}
}

void
ca_order_set_only_user(struct ca_space *space, struct ca_stream *stream)
{
	ca_order_lock(&space->order);
	space->order.only_user = stream ? ca_record(stream) : NULL;
	ca_order_unlock(&space->order);
}

/* A mark of a blocking stream stands behind all that the legacy stream was given before it. */
static void
arm_legacy_ordered(struct ca_order *order)
{
	unsigned word;
	uint64_t bits;

	for (word = 0; word < CA_ACTIVE_WORDS; word++)
		for (bits = atomic_load(&order->ordered[1][word]); bits; bits &= bits - 1) {
			struct ca_stream *legacy =
				&order->streams[word * 64 + __builtin_ctzll(bits)]->stream;

			if (!(atomic_load(&legacy->seen) & CA_ORDERED_ARMED))
				atomic_fetch_or(&legacy->seen, CA_ORDERED_ARMED);
		}
}

void
ca_record_arm_ordered(struct ca_stream_record *record)
{
	struct ca_order *order = ca_record_order(record);
	uint64_t bit = (uint64_t)1 << record->index % 64;

	atomic_store(&record->stream.armed, ++record->arms);
	if (atomic_load(&order->ordered[0][record->index / 64]) & bit &&
	    !CA_MUTANT(LEGACY_IN_FRONT))
		arm_legacy_ordered(order);
}

void
ca_user_arm_ordered(const struct ca_user *user)
{
	struct ca_stream_record *record = ca_record(user->stream);

	if (!atomic_load(&record->closed))
		ca_record_arm_ordered(record);
	if (user->stamp > record->wanted)
		record->wanted = user->stamp;
	if (record->submitting) /* the mark may cover it */
		ca_raise(&record->exact_after, user->stamp);
}

static void
arm_ordered(const struct ca_users *users)
{
	unsigned i;

	for (i = 0; i < users->n; i++)
		ca_user_arm_ordered(&users->user[i]);
}

bool
ca_order_waits_when_quiet(struct ca_order *order)
{
	return __atomic_load_n(&ca_order_space(order)->heap->config.reuse_finished,
			       __ATOMIC_RELAXED);
}

void
ca_order_users(struct ca_order *order, uint64_t birth, const struct ca_users *inherited,
	       struct ca_users *ret_users)
{
	unsigned fallback = atomic_load(&order->finished_only) & ~CA_REASONS_SEEN;
	struct ca_candidates all;
	unsigned i;

	all.n = 0;
	all.more = false;
	ca_order_lock(order);
	ret_users->context =
		fallback || inherited->context || ca_order_has_foreign_user(order, birth);
	for (i = 0; i < inherited->n && !CA_MUTANT(INHERITED_DROPPED); i++)
		if (!ca_user_is_done(&inherited->user[i]))
			all.user[all.n++] = inherited->user[i];
	ca_users_collect_ordered(order, birth, &all);
	ca_users_choose_ordered(&all, ret_users);
	for (i = 0; i < ret_users->n; i++)
		ret_users->context |= ca_record_needs_context(ca_record(ret_users->user[i].stream));
	if (!ret_users->context &&
	    (ca_order_waits_when_quiet(order) || !ca_order_is_quiet_ordered(order)))
		arm_ordered(ret_users);
	ca_order_unlock(order);
}

/* ---- quiet */

static bool
is_held_up_ordered(struct ca_order *order)
{
	struct ca_stream_record *record;
	unsigned at;

	if (!atomic_load(&order->hazards))
		return false;
	if (atomic_load(&order->submitting))
		return true;
	for (at = 0; (record = ca_order_next_active_ordered(order, &at)); at++)
		if (ca_record_has_hazard(record))
			return true;
	return false;
}

bool
ca_order_is_held_up(struct ca_order *order)
{
	bool held_up;

	ca_order_lock(order);
	held_up = is_held_up_ordered(order);
	ca_order_unlock(order);
	return held_up;
}

bool
ca_order_is_quiet_ordered(struct ca_order *order)
{
	return atomic_load(&order->candidates) <= 1 && !is_held_up_ordered(order);
}

bool
ca_order_is_quiet(struct ca_order *order)
{
	bool quiet;

	if (atomic_load(&order->candidates) > 1)
		return false;
	if (!atomic_load(&order->hazards))
		return true;
	ca_order_lock(order);
	quiet = ca_order_is_quiet_ordered(order);
	ca_order_unlock(order);
	return quiet;
}

bool
ca_order_others_are_active(struct ca_order *order, const struct ca_stream_record *only)
{
	uint64_t others = 0;
	unsigned i = 0;

	do /* words of streams that there are */
		others |= atomic_load(&order->active[i]) &
			  ~(only->index / 64 == i ? active_bit(only) : 0);
	while (++i * 64 < atomic_load(&order->n_streams));
	return others != 0;
}

struct ca_stream_record *
ca_order_is_only_stream(struct ca_order *order, struct ca_stream_record *only)
{
	return ca_order_is_quiet(order) && ca_record_is_busy(only) ? only : NULL;
}

/* ---- bounds, and what has finished */

uint64_t
ca_order_bound_over(struct ca_order *order, uint64_t last)
{
	uint64_t epoch = atomic_load(&order->words.epoch) & ~(uint64_t)1;

	return last < epoch ? epoch - 1 : ca_order_advance(order);
}

uint64_t
ca_order_bound(struct ca_stream *stream)
{
	return ca_order_bound_over(ca_record_order(ca_record(stream)), atomic_load(&stream->last));
}

uint64_t
ca_order_context_bound(struct ca_order *order)
{
	uint64_t last = atomic_load(&order->foreign);
	struct ca_stream_record *record;
	unsigned i;

	/* no stamp tells the unseen work before this bound from that after it */
	if (atomic_load(&order->finished_only) & ~CA_REASONS_SEEN)
		return ca_order_advance(order);
	for (i = 0; (record = ca_record_at(order, i)); i++)
		if (atomic_load(&record->stream.last) > last)
			last = atomic_load(&record->stream.last);
	return ca_order_bound_over(order, last);
}

uint64_t
ca_order_space_bound(struct ca_space *space)
{
	return ca_order_context_bound(&space->order);
}

void
ca_order_note_progress(struct ca_order *order)
{
	atomic_fetch_add(&order->progress, 1);
}

static CA_APART void
trace_finished(struct ca_stream_record *record)
{
	struct ca_order *order = ca_record_order(record);
	uint64_t left = 0;
	unsigned at;

	for (at = 0; ca_order_next_active_ordered(order, &at); at++)
		left++;
	ca_trace_finished(record, left, ca_record_is_busy(record), atomic_load(&record->done));
}

void
ca_record_finished_ordered(struct ca_stream_record *record, uint64_t bound, struct ca_list *dropped)
{
	if (!ca_raise(&record->done, bound))
		return;
	ca_order_note_progress(ca_record_order(record));
	ca_record_settle_ordered(record);
	if (ca_tracing(record->space->heap))
		trace_finished(record);
	if (dropped)
		ca_stream_marks_collect_ordered(record, dropped);
}

void
ca_record_finished(struct ca_stream_record *record, uint64_t bound, struct ca_list *dropped)
{
	struct ca_order *order = ca_record_order(record);

	if (atomic_load(&record->done) >= bound)
		return;
	ca_order_lock(order);
	ca_record_finished_ordered(record, bound, dropped);
	ca_order_unlock(order);
}

void
ca_order_finished(struct ca_stream *stream, uint64_t bound)
{
	struct ca_stream_record *record = ca_record(stream);
	struct ca_list dropped;

	ca_list_init(&dropped);
	ca_record_finished(record, bound, &dropped);
	ca_stream_marks_drop(record->space, &dropped);
}

/* Does a synchronising copy of the calling thread on the legacy stream wait for it? */
static bool
is_after_legacy(struct ca_stream_record *record)
{
	struct ca_order *order = ca_record_order(record);
	bool result;

	ca_order_lock(order);
	result = !atomic_load(&record->closed) && record->kind != CA_STREAM_NONBLOCKING &&
		 (record->kind != CA_STREAM_PER_THREAD || record->thread == ca_order_thread());
	ca_order_unlock(order);
	return result;
}

void
ca_order_space_finished(struct ca_space *space, uint64_t bound, bool blocking)
{
	struct ca_stream_record *record;
	unsigned i;

	for (i = 0; (record = ca_record_at(&space->order, i)); i++)
		if (ca_record_is_busy(record) && (!blocking || is_after_legacy(record)))
			ca_order_finished(&record->stream, bound);
}

void
ca_order_context_finished(struct ca_order *order, uint64_t bound)
{
	struct ca_stream_record *record;
	unsigned i;

	if (ca_raise(&order->foreign_done, bound))
		ca_order_note_progress(order);
	for (i = 0; (record = ca_record_at(order, i)); i++)
		if (ca_record_is_busy(record))
			ca_record_finished(record, bound, NULL);
}

/* ---- work that the stream does not end by itself, and of other spaces */

void
ca_submit_hazard_begin(struct ca_stream *stream)
{
	struct ca_stream_record *record = ca_record(stream);
	struct ca_order *order = ca_record_order(record);
	struct ca_space *space = ca_order_space(order);
	bool ends, marks;

	ca_order_lock(order);
	ends = ca_order_is_quiet_ordered(order);
	/* another thread that ended the quiet may not have marked yet what is exposed */
	marks = ends || atomic_load(&order->submitting);
	/* first, so that whoever still finds the space quiet is looked at below */
	atomic_fetch_or(&space->attention, CA_ATTENTION_ORDER);
	atomic_fetch_add(&order->hazards, 1);
	atomic_fetch_add(&order->submitting, 1);
	record->submitting++;
	if (ends)
		ca_order_leave_quiet_ordered(order);
	ca_order_unlock(order);
	ca_record_mark_ordered(record);
	if (!marks)
		return;
	/* memory that was found to be exposable before is exposed by now */
	ca_heap_lock(space->heap);
	space->heap->hooks.flush_exposed(space->heap);
	ca_heap_unlock(space->heap);
	ca_order_mark_exposed(space);
}

void
ca_submit_hazard_end(struct ca_stream *stream, bool submitted)
{
	struct ca_stream_record *record = ca_record(stream);
	struct ca_order *order = ca_record_order(record);

	ca_order_lock(order);
	if (submitted)
		ca_raise(&record->hazard, atomic_load(&stream->last));
	record->submitting--;
	atomic_fetch_sub(&order->submitting, 1);
	ca_order_unlock(order);
}

void
ca_submit_foreign(struct ca_space *space, const struct ca_stream *stream)
{
	struct ca_order *order = &space->order;
	uint64_t epoch = atomic_load(&order->words.epoch);

	if (!stream)
		atomic_store(&order->foreign_unknown, true);
	if (atomic_load(&order->foreign) >= epoch)
		return;
	if (!CA_MUTANT(FOREIGN_UNSTAMPED))
		make_odd(&order->words); /* before anybody can see the stamp */
	ca_raise(&order->foreign, epoch | 1);
}
