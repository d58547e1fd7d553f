/* SPDX-License-Identifier: Apache-2.0 */
/* See frames.h. */
#include "lib/frames.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

void frames_give_back(struct link *net, int timeout_ms)
{
	struct link_buffer body = {0};
	struct wire_head head;
	uint8_t *bulk = malloc(FRAMES_MAX);
	int fds[WIRE_FDS_MAX];
	check(bulk);
	while (!link_receive(net, timeout_ms, &head, &body, fds) && head.bulk_bytes <= FRAMES_MAX &&
	       !link_receive_bytes(net, bulk, head.bulk_bytes))
		if (link_send(net, &head, body.bytes, NULL, 0) || link_send_bytes(net, bulk, head.bulk_bytes))
			break;
	link_buffer_done(&body);
	free(bulk);
}

void frames_carry(struct link *net, const size_t *sizes, size_t n)
{
	struct link_buffer body = {0};
	int fds[WIRE_FDS_MAX];
	uint8_t *bytes = malloc(FRAMES_MAX), *back = malloc(FRAMES_MAX);
	check(bytes && back);
	for (size_t i = 0; i < FRAMES_MAX; i++)
		bytes[i] = (uint8_t)(i * 7 + i / 251);
	for (size_t i = 0; i < n; i++) {
		struct wire_head reply, head = {.version = WIRE_VERSION,
		                                .type = WIRE_PUT,
		                                .id = i,
		                                .body_bytes = (uint32_t)sizes[i],
		                                .bulk_bytes = sizes[n - 1 - i]};
		check(link_is_idle(net));
		check(!link_send(net, &head, bytes, NULL, 0));
		size_t half = head.bulk_bytes / 3;
		struct iovec parts[3] = {{bytes, half}, {bytes + half, 0}, {bytes + half, head.bulk_bytes - half}};
		check(!head.bulk_bytes || !link_send_parts(net, parts, 3));
		check(!link_receive(net, 10000, &reply, &body, fds));
		check(reply.id == i && reply.body_bytes == sizes[i] && !memcmp(body.bytes, bytes, sizes[i]));
		memset(back, 0, head.bulk_bytes);
		check(!link_receive_bytes(net, back, head.bulk_bytes));
		check(!memcmp(back, bytes, head.bulk_bytes));
	}
	check(link_is_idle(net));
	int64_t begun = link_now_ms();
	struct wire_head none;
	check(link_receive(net, 50, &none, &body, fds) == -ETIMEDOUT);
	check(link_now_ms() - begun >= 50);
	link_buffer_done(&body);
	free(bytes);
	free(back);
}

void frames_ucx_prepare(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	check(!setenv("UCX_MEM_MMAP_HOOK_MODE", "none", 1));
#endif
}
