/* SPDX-License-Identifier: MIT */
/*
 * Circular doubly linked list, intrusive. An element can leave its list without knowing the head,
 * which is what lets a record disappear from a list another thread holds in its hand
 * (allocator/core/types.h).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct ca_list {
	struct ca_list *next;
	struct ca_list *prev;
};

#define CA_CONTAINER_OF(pointer, type, member)                                                     \
	((type *)(void *)((char *)(pointer)-offsetof(type, member)))

/* Each element, of `type`, by its link `member`. None leaves the list meanwhile. */
#define CA_LIST_EACH(type, each, list, member)                                                     \
	for (type *each = CA_CONTAINER_OF((list)->next, type, member); &each->member != (list);    \
	     each = CA_CONTAINER_OF(each->member.next, type, member))

/* The same, where the element itself may leave the list. */
#define CA_LIST_EACH_SAFE(type, each, list, member)                                                \
	for (type *each = CA_CONTAINER_OF((list)->next, type, member), *each##_next;               \
	     &each->member != (list) &&                                                            \
	     (each##_next = CA_CONTAINER_OF(each->member.next, type, member), true);               \
	     each = each##_next)

/* An empty head, or an element in no list. */
static inline void
ca_list_init(struct ca_list *list)
{
	list->next = list;
	list->prev = list;
}

static inline bool
ca_list_empty(const struct ca_list *list)
{
	return list->next == list;
}

/* Before `place`: at the tail when `place` is the head. `element` must be in no list. */
static inline void
ca_list_insert(struct ca_list *place, struct ca_list *element)
{
	element->next = place;
	element->prev = place->prev;
	place->prev->next = element;
	place->prev = element;
}

/* Harmless on an element that is in no list. */
static inline void
ca_list_remove(struct ca_list *element)
{
	element->prev->next = element->next;
	element->next->prev = element->prev;
	ca_list_init(element);
}

/* Of an element that is in a list; it is not looked at again before it is put into another. */
static inline void
ca_list_unlink(struct ca_list *element)
{
	element->prev->next = element->next;
	element->next->prev = element->prev;
}

/* Moves every element of `from` to the tail of `to`. */
static inline void
ca_list_splice(struct ca_list *to, struct ca_list *from)
{
	if (ca_list_empty(from))
		return;
	from->next->prev = to->prev;
	from->prev->next = to;
	to->prev->next = from->next;
	to->prev = from->prev;
	ca_list_init(from);
}

/* The same, where `to` is not a list so far. */
static inline void
ca_list_take(struct ca_list *to, struct ca_list *from)
{
	ca_list_init(to);
	ca_list_splice(to, from);
}
