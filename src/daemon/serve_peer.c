/* SPDX-License-Identifier: Apache-2.0 */
/* What a peer is told: which parts this cairnd has itself. See daemon.h. */
#include <string.h>

#include "base/mem.h"
#include "daemon/daemon.h"
#include "store/peer.h"

int serve_presence(struct conn *conn, const struct wire_head *head, const struct wire_request *request)
{
	struct wire_presence own = request->u.presence;
	const struct wire_presence *ask = &own;
	struct wire_found *found = NULL;
	if (!may_see(conn, &own.space))
		memset(&own.space, 0, sizeof(own.space)); /* of another tenant there is nothing, in the same way */
	double wait_s = 0, flash_bytes_s = 0;
	long n = store_presence(conn->daemon->store, ask, &found, &wait_s, &flash_bytes_s);
	if (n < 0)
		return conn_begin(conn, cairn_error_text(), 0) || conn_reply(conn, head, n, 0) ? -1 : 0;
	int error = conn_begin(conn, NULL, 32 + (size_t)n * WIRE_FOUND_BYTES);
	if (!error) {
		wire_add_present(&conn->reply, wait_s, flash_bytes_s, (uint32_t)n);
		for (long i = 0; i < n; i++)
			wire_add_found(&conn->reply, &found[i]);
		error = conn_reply(conn, head, n, 0);
	}
	mem_free(found);
	return error;
}
