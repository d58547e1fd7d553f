/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device's checkpoint: what its catalog knew at one moment, so that a reopen need not read the indexes before it.
 * One string of bytes in checkpoint segments, made and read as a stream; the ledger's LEDGER_MARK says where. Pure.
 *
 * A head of one page, then three tables, each begun on a page and padded with zeros to one: lives, spaces, entries. The
 * body check runs over all pages behind the head: digest_xxh of CHECKPOINT_SEED. Nothing of the body may be believed
 * before its end was reached and the check is right.
 */
#ifndef CAIRN_FMT_CHECKPOINT_H
#define CAIRN_FMT_CHECKPOINT_H

#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "fmt/segment.h"

#define CHECKPOINT_LIFE_BYTES 16u
#define CHECKPOINT_SPACE_BYTES 32u /* a space's id, as it is */
#define CHECKPOINT_ENTRY_BYTES 64u
/* Together below 4 GiB, since LEDGER_MARK counts a checkpoint's bytes in 32 bits. */
#define CHECKPOINT_LIVES_MAX (1u << 24)
#define CHECKPOINT_SPACES_MAX (1u << 16)
#define CHECKPOINT_ENTRIES_MAX 60000000u
#define CHECKPOINT_SEED UINT64_C(0x59444f4250435243) /* "CRCPBODY" */

struct checkpoint_head {
	uint32_t version;
	uint8_t device_id[16];
	uint64_t sequence;   /* device sequence: groups after it are not in here */
	uint64_t body_check;
	uint32_t nlives, nspaces, nentries;
};

/* A segment and the life that it was in: entries in a segment that has since begun another life are void. */
struct checkpoint_life {
	uint32_t segment;
	uint64_t life;
};

struct checkpoint_entry {
	uint8_t key_prefix[16];
	uint8_t parent_prefix[16]; /* zeros: none known */
	uint64_t check;            /* the stored check */
	uint64_t birth;
	uint32_t page;             /* of the payload, from label.segments_offset */
	uint32_t stored_length, raw_length; /* 1..FMT_PART_BYTES_MAX */
	uint16_t space_index;      /* below nspaces */
	uint8_t part;              /* below FMT_PARTS_MAX */
	uint8_t group;             /* below FMT_GROUPS_MAX */
	uint8_t flags;             /* FMT_PART_... */
};

/* Where the tables begin, and the bytes of all of it (a multiple of a page), from the head's first byte. */
static inline uint64_t checkpoint_lives_offset(void) { return FMT_PAGE; }
static inline uint64_t checkpoint_spaces_offset(uint32_t nlives)
{
	return FMT_PAGE + BYTES_ROUND_UP((uint64_t)nlives * CHECKPOINT_LIFE_BYTES, FMT_PAGE);
}
static inline uint64_t checkpoint_entries_offset(uint32_t nlives, uint32_t nspaces)
{
	return checkpoint_spaces_offset(nlives) + BYTES_ROUND_UP((uint64_t)nspaces * CHECKPOINT_SPACE_BYTES, FMT_PAGE);
}
static inline uint64_t checkpoint_size(uint32_t nlives, uint32_t nspaces, uint32_t nentries)
{
	return checkpoint_entries_offset(nlives, nspaces) +
	       BYTES_ROUND_UP((uint64_t)nentries * CHECKPOINT_ENTRY_BYTES, FMT_PAGE);
}

void checkpoint_head_encode(const struct checkpoint_head *head, uint8_t page[FMT_PAGE]);
/* FMT_OK, FMT_BAD or FMT_NEWER. Counts are within the _MAX above; that checkpoint_size is what the ledger says, and the
 * device the right one, is the caller's to compare. */
int checkpoint_head_decode(const uint8_t page[FMT_PAGE], struct checkpoint_head *ret_head);
void checkpoint_life_encode(const struct checkpoint_life *life, uint8_t bytes[CHECKPOINT_LIFE_BYTES]);
void checkpoint_life_decode(const uint8_t bytes[CHECKPOINT_LIFE_BYTES], struct checkpoint_life *ret_life);
void checkpoint_entry_encode(const struct checkpoint_entry *entry, uint8_t bytes[CHECKPOINT_ENTRY_BYTES]);
/* FMT_OK or FMT_BAD. `pages` and `nspaces` bound the payload's place (pages of all segments) and the space's index. */
int checkpoint_entry_decode(const uint8_t bytes[CHECKPOINT_ENTRY_BYTES], uint32_t nspaces, uint64_t pages,
                            struct checkpoint_entry *ret_entry);

#endif
