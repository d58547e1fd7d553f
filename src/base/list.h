/* SPDX-License-Identifier: Apache-2.0 */
/* Intrusive doubly linked list with a head node. A node is in one list or in none (next == NULL). */
#ifndef CAIRN_BASE_LIST_H
#define CAIRN_BASE_LIST_H

#include <stddef.h>

struct list {
	struct list *next, *prev;
};

#define LIST_OF(node, type, member) ((type *)(void *)((char *)(node) - offsetof(type, member)))

static inline void list_init(struct list *head) { head->next = head->prev = head; }
static inline int list_empty(const struct list *head) { return head->next == head; }
static inline int list_linked(const struct list *node) { return node->next != NULL; }
static inline void list_insert(struct list *prev, struct list *node, struct list *next)
{
	node->prev = prev;
	node->next = next;
	prev->next = node;
	next->prev = node;
}
static inline void list_push_back(struct list *head, struct list *node) { list_insert(head->prev, node, head); }
static inline void list_push_front(struct list *head, struct list *node) { list_insert(head, node, head->next); }
static inline void list_remove(struct list *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
	node->next = node->prev = NULL;
}
static inline struct list *list_pop_front(struct list *head)
{
	if (list_empty(head))
		return NULL;
	struct list *node = head->next;
	list_remove(node);
	return node;
}

#endif
