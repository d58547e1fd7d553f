/* SPDX-License-Identifier: Apache-2.0 */
/* A request from the wire. Input: two bytes of type, then the body; and all of it as the header of a frame. Of type
 * 65,535: a peer's answer to which of 1,000 keys it has. */
#include "fmt/wire.h"

#include "fuzz/fuzz.h"

static struct wire_request request;

static void answer(const uint8_t *data, size_t size)
{
	struct bytes_reader r = bytes_reader_of(data, size);
	struct wire_present present;
	struct wire_found found;

	wire_take_present(&r, 1000, &present);
	if (r.failed)
		return;
	uint8_t *again = malloc(size);
	check(again);
	struct bytes_writer w = bytes_writer_of(again, size);
	wire_add_present(&w, present.wait_s, present.flash_bytes_s, present.nfound);
	for (uint32_t i = 0; i < present.nfound; i++) {
		wire_take_found(&present.found, &found);
		check(found.key < 1000 && found.part < 64 && found.length && found.length <= CAIRN_PART_MAX_BYTES);
		wire_add_found(&w, &found);
	}
	check(!present.found.failed && !w.failed && w.used == size && !memcmp(again, data, size));
	free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct wire_head head;
	uint8_t bytes[WIRE_HEAD_BYTES];

	if (size >= WIRE_HEAD_BYTES && !wire_head_decode(data, &head)) {
		size_t body = size - WIRE_HEAD_BYTES < head.body_bytes ? size - WIRE_HEAD_BYTES : head.body_bytes;

		(void)wire_is_whole(data, data + WIRE_HEAD_BYTES, body);
		head.body_bytes = (uint32_t)body;
		wire_head_encode(&head, data + WIRE_HEAD_BYTES, bytes);
		check(wire_is_whole(bytes, data + WIRE_HEAD_BYTES, body));
	}
	if (size < 2)
		return 0;
	if (bytes_get16(data) == UINT16_MAX) {
		answer(data + 2, size - 2);
		return 0;
	}
	uint32_t type = bytes_get16(data) % WIRE_TYPES;
	if (wire_request_decode(type, data + 2, size - 2, &request))
		return 0;
	/* What is taken is all there is: written again it is the same. */
	uint8_t *again = malloc(size);
	check(again);
	struct bytes_writer w = bytes_writer_of(again, size);
	wire_request_encode(&request, &w);
	check(!w.failed && w.used == size - 2 && !memcmp(again, data + 2, w.used));
	free(again);
	return 0;
}
