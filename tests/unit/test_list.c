/* SPDX-License-Identifier: Apache-2.0 */
/* The intrusive list. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/list.h"

struct thing {
	int number;
	struct list link;
};

static int pop_number(struct list *head)
{
	struct list *node = list_pop_front(head);

	return node ? LIST_OF(node, struct thing, link)->number : -1;
}

static void test_list__is_empty_when_new(void **state)
{
	struct list head;

	(void)state;
	list_init(&head);
	assert_true(list_empty(&head));
	assert_null(list_pop_front(&head));
}

static void test_list__keeps_order_when_pushed(void **state)
{
	struct thing things[4] = {{1, {0}}, {2, {0}}, {3, {0}}, {4, {0}}};
	struct list head;

	(void)state;
	list_init(&head);
	list_push_back(&head, &things[1].link);
	list_push_back(&head, &things[2].link);
	list_push_front(&head, &things[0].link);
	list_insert(&things[2].link, &things[3].link, things[2].link.next);
	assert_false(list_empty(&head));
	for (int number = 1; number <= 4; number++)
		assert_int_equal(pop_number(&head), number);
	assert_int_equal(pop_number(&head), -1);
}

static void test_list__node_is_unlinked_when_removed(void **state)
{
	struct thing things[3] = {{1, {0}}, {2, {0}}, {3, {0}}};
	struct list head;

	(void)state;
	list_init(&head);
	assert_false(list_linked(&things[1].link));
	for (int i = 0; i < 3; i++)
		list_push_back(&head, &things[i].link);
	assert_true(list_linked(&things[1].link));
	list_remove(&things[1].link);
	assert_false(list_linked(&things[1].link));
	assert_int_equal(pop_number(&head), 1);
	assert_false(list_linked(&things[0].link));
	list_push_back(&head, &things[1].link); /* again */
	assert_int_equal(pop_number(&head), 3);
	assert_int_equal(pop_number(&head), 2);
	assert_true(list_empty(&head));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_list__is_empty_when_new),
		cmocka_unit_test(test_list__keeps_order_when_pushed),
		cmocka_unit_test(test_list__node_is_unlinked_when_removed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
