/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What lies on a flash device: the label, commit groups, segment footers. Structs here are in-memory forms; encode and
 * decode are pure and the only place that knows offsets. docs/FORMAT.md is the document.
 *
 * Device:  page 0 label, page 1 its copy, then the ledger (fmt/ledger.h): area A copy 1, A copy 2, B copy 1, B copy 2,
 * then segments from label.segments_offset on.
 * Segment: commit groups one after the other from its start, each an index (1..n pages) then payloads, each aligned to
 * a page; when sealed, the footer's entries and, in its last page, the trailer.
 */
#ifndef CAIRN_FMT_SEGMENT_H
#define CAIRN_FMT_SEGMENT_H

#include <stddef.h>
#include <stdint.h>

#define FMT_PAGE 4096u
#define FMT_VERSION 1u /* newest version this code writes */

/* Bits of features. A reader that does not know a bit of `incompat` must not open; of `ro_compat` may only read.
 * Decode says FMT_NEWER to unknown incompat bits; that unknown ro_compat bits forbid writing is the opener's to see to,
 * in the label and the identity file: below them the bits are for incompat alone. */
struct fmt_bits {
	uint32_t compat, ro_compat, incompat;
};
#define FMT_RO_COMPAT_KNOWN 0u
#define FMT_INCOMPAT_KNOWN 0u

/* Bounds that decode enforces, so that what it returns needs no second look. */
#define FMT_PART_BYTES_MAX (64u << 20)
#define FMT_PARTS_MAX 64u   /* part numbers are below */
#define FMT_GROUPS_MAX 16u  /* group numbers of blocks are below */
#define FMT_DEVICES_MAX 16u
#define FMT_SEGMENT_BYTES_MIN (64u << 10)
#define FMT_SEGMENT_BYTES_MAX (1u << 30)

enum fmt_result {
	FMT_OK = 0,
	FMT_BAD = -1,   /* not this format, torn or damaged */
	FMT_NEWER = -2, /* a version or incompat bit we do not know */
};

struct fmt_label {
	uint32_t version;
	struct fmt_bits bits;
	uint8_t store_id[16];
	uint8_t device_id[16];
	uint32_t device_index;
	uint32_t segment_bytes;   /* power of two */
	uint32_t ledger_bytes;    /* of one copy of one area; a multiple of a page */
	uint64_t ledger_offset;   /* a multiple of a page, behind both labels */
	uint64_t segments_offset; /* a multiple of a page, behind all four of the ledger's copies */
};
/* One page, written to page 0 and page 1 alike. A reader takes page 1 where page 0 is FMT_BAD. */
void segment_label_encode(const struct fmt_label *label, uint8_t page[FMT_PAGE]);
int segment_label_decode(const uint8_t page[FMT_PAGE], struct fmt_label *ret_label);

/* In the label's places while a raw device is prepared and belongs to no store yet. */
void segment_blank_encode(uint64_t bytes, uint8_t page[FMT_PAGE]);
int segment_blank_decode(const uint8_t page[FMT_PAGE], uint64_t *ret_bytes);

enum {
	FMT_PART_TAIL = 1u << 0,
	FMT_PART_MANIFEST = 1u << 1, /* a session's manifest (fmt/manifest.h) */
	FMT_PART_MOVED = 1u << 2,    /* carried over from another segment */
};

/* One part in a commit group or footer. Encoded in FMT_ENTRY_BYTES. Decoded entries have lengths in
 * 1..FMT_PART_BYTES_MAX, part and group in their bounds, no unknown flags. */
struct fmt_entry {
	uint8_t key[32];
	uint8_t space[32];
	uint8_t parent[32];    /* zeros: none known */
	uint16_t part;
	uint16_t group;
	uint8_t codec;         /* 0: stored as it is, raw_length == stored_length; others make the index FMT_NEWER */
	uint8_t flags;         /* FMT_PART_... */
	uint32_t raw_length;
	uint32_t stored_length;
	uint32_t page;         /* of the payload, from the segment's start */
	uint64_t raw_check;    /* XXH3-64 of the raw bytes, seed 0 */
	uint8_t stored_check[16]; /* segment_stored_check in the first 8 bytes; the GCM tag where key_id is not 0 */
	uint32_t key_id;       /* 0: not encrypted */
	uint8_t nonce[12];
	uint64_t birth;
};
#define FMT_ENTRY_BYTES 192u
#define FMT_GROUP_HEAD_BYTES 128u
#define FMT_GROUP_ENTRIES_MAX 1024u
#define FMT_INDEX_PAGES_MAX 49u /* of the index of so many entries */

struct fmt_group {
	uint32_t version;
	uint32_t segment;
	uint64_t life;
	uint64_t sequence;        /* of the device: rises with every group and every open */
	uint64_t flushed_through; /* all groups up to this sequence are known to be durable */
	uint64_t ledger_sequence; /* newest ledger page that was durable then */
	uint32_t first_page;      /* where the group starts, in pages from the segment's start */
	uint32_t index_pages;
	uint32_t total_pages;     /* index and payloads */
	uint32_t nentries;
	uint8_t tenant[16];       /* first bytes of the tenant's digest */
};
/* Pages that the index of n entries takes. */
uint32_t segment_index_pages(uint32_t nentries);
/* Encodes the index into index_pages pages (zero padded). The checksum is seeded with the life's salt. Entries'
 * payloads must lie in the group behind the index; a group has 1..FMT_GROUP_ENTRIES_MAX entries. */
void segment_group_encode(const struct fmt_group *group, const struct fmt_entry *entries, uint64_t salt,
                          uint8_t *pages);
/* Decodes the head from the group's first page: enough to know index_pages (1..FMT_INDEX_PAGES_MAX). Not yet proven:
 * the checksum covers all pages, so a newer version is not believed here either, and is left to decode to report.
 * Checks magic and bounds against segment_pages. FMT_OK or FMT_BAD. */
int segment_group_peek(const uint8_t *page, uint32_t segment_pages, struct fmt_group *ret_group);
/* Decodes an index from `npages` pages, of which it may take fewer; `entries` has room for `max`. Every entry's payload
 * lies inside the group, behind the index. That segment, life and first_page are those of the place it was read from
 * is the caller's to compare. FMT_OK, FMT_BAD or FMT_NEWER; `entries` may be overwritten with any of them. */
int segment_group_decode(const uint8_t *pages, uint32_t npages, uint32_t segment_pages, uint64_t salt,
                         struct fmt_group *ret_group, struct fmt_entry *entries, uint32_t max);

struct fmt_footer {
	uint32_t version;
	uint32_t segment;
	uint64_t life;
	uint64_t first_sequence, last_sequence; /* of its groups */
	uint64_t flushed_through;
	uint32_t nentries;
	uint32_t entries_page;  /* where the entries start, in pages from the segment's start */
	uint32_t entries_pages;
	uint32_t used_pages;    /* of the groups */
	uint8_t tenant[16];
};
/* Pages that n entries take; 0 for none. */
uint32_t segment_footer_entry_pages(uint32_t nentries);
/* Encodes entries into footer.entries_pages pages, and the trailer into one page, the segment's last. `entry_pages` may
 * be NULL where there are none. */
void segment_footer_encode(const struct fmt_footer *footer, const struct fmt_entry *entries, uint64_t salt,
                           uint8_t *entry_pages, uint8_t trailer[FMT_PAGE]);
int segment_trailer_decode(const uint8_t trailer[FMT_PAGE], uint32_t segment_pages, uint64_t salt,
                           struct fmt_footer *ret_footer);
/* `footer` and `trailer` are what segment_trailer_decode returned and was given; `entries` has room for
 * footer->nentries, which is at most footer->used_pages. FMT_OK, FMT_BAD or FMT_NEWER (a codec). */
int segment_footer_decode(const struct fmt_footer *footer, const uint8_t *trailer, const uint8_t *entry_pages,
                          uint32_t segment_pages, uint64_t salt, struct fmt_entry *entries);

/* The check that proves bytes AND identity: XXH3-64 over {key, space, part, codec, raw length, stored length,
 * XXH3-64 of the stored bytes}, as drawn in docs/FORMAT.md. With codec 0 the last is the raw check, so one pass gives
 * both. */
uint64_t segment_stored_check(const uint8_t key[32], const uint8_t space[32], uint16_t part, uint32_t raw_length,
                              uint32_t stored_length, uint8_t codec, uint64_t stored_xxh3);

#endif
