#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Times to live by the wall clock: kept until then, gone after it, across processes; times that make no sense are refused.
. "$(dirname "$0")/lib.sh"
cd "$T" || exit 1

random a 2000
random b 3000
run 0 "$CAIRN" put s short a --ttl 1 --budget 64M
run 0 "$CAIRN" put s long b --ttl 1h
run 0 "$CAIRN" put s over a --ttl 1
run 0 "$CAIRN" put s over b # a new one, without a time to live
run 0 "$CAIRN" put s longer a --ttl 2
run 0 "$CAIRN" session s pin longer --ttl 1h
run 0 "$CAIRN" put s pinned a --ttl 2
run 0 "$CAIRN" session s pin pinned
run 0 "$CAIRN" put s freed a --pin
run 0 "$CAIRN" session s pin freed --ttl 1
sleep 2.5
run 0 "$CAIRN" ls s --json
json 'sorted(s["name"] for s in j["sessions"]) == ["long", "longer", "over", "pinned"]'
json 'all((s["expires_at_s"] is None) == (s["name"] in ("over", "pinned")) for s in j["sessions"])'
for name in short freed; do
	run 1 "$CAIRN" get s $name got
	says "no session \"$name\""
	run 1 "$CAIRN" session s show $name
	run 1 "$CAIRN" session s pin $name --ttl 1h
	run 1 "$CAIRN" session s forget $name
done
for name in long over; do
	run 0 "$CAIRN" get s $name got
	same b got
done
for name in longer pinned; do
	run 0 "$CAIRN" get s $name got
	same a got
done
# Read-only looks expire nothing on flash, a writing one does; both show the same.
run 0 "$CAIRN" put s late b --ttl 1
sleep 1.6
run 0 "$CAIRN" ls s --read-only
grep -q ' late$' "$T/out" && fail "expired, and listed"
run 0 "$CAIRN" put s late a # of that name anew: the first of its kind, or the second
run 0 "$CAIRN" get s late got
same a got
# A name is free again, with another time to live.
run 0 "$CAIRN" put s short b --ttl 1d
run 0 "$CAIRN" session s show short
prints '^kept +until '
run 0 "$CAIRN" get s short got
same b got

for time in 0 -5 1.5 1y '' 1h30 ' 3' 99999999999999999999 99999999999999d 0x10 9223372036854775807d; do
	run 2 "$CAIRN" put s bad a "--ttl=$time"
	says 'not a time'
done
for time in 1 90s 15m 1h 2d 3000d; do
	run 0 "$CAIRN" put s "for $time" a --ttl $time
	quiet
done
run 1 "$CAIRN" get s bad got

# The clock goes back by a day, or on by two: no crash, and what was promised for longer is kept.
if command -v faketime >/dev/null; then
	run 0 faketime -f -1d "$CAIRN" ls s
	run 0 faketime -f +2d "$CAIRN" get s 'for 3000d' got
	run 1 faketime -f +2d "$CAIRN" get s 'for 1h' got
fi
finish
