#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# cairn fsck --repair is killed at any moment: what it leaves opens, serves no wrong byte, and is mended by another run.
. "$(dirname "$0")/lib.sh"
cd "$T" || exit 1

random a 9000000
random b 5000000
run 0 "$CAIRN" put store a a --budget 64M
run 0 "$CAIRN" put store b b
python3 - <<'PYTHON'
# Both labels, a page of the ledger in one copy, and one byte of a.
block = open("a", "rb").read()[2 << 20:(2 << 20) + 64]
with open("store/flash.cairn", "r+b") as file:
    data = file.read()
    for at in (100, 4196, 8192 + data[8192:].find(b"CAIRNLED") + 60, data.find(block)):
        file.seek(at)
        file.write(bytes([data[at] ^ 0x55]))
PYTHON
mv store hurt
for i in $(seq 6); do
	rm -rf store
	cp -r hurt store
	"$CAIRN" fsck store --repair >/dev/null 2>&1 &
	pid=$!
	sleep "0.0$(printf %02d $((i * 4)))"
	kill -9 $pid 2>/dev/null
	wait $pid 2>/dev/null
	if [ $((i % 2)) -eq 0 ]; then # either opened first, or mended at once; its label may still be lost
		"$CAIRN" get store b out >/dev/null 2>&1 && same b out
		"$CAIRN" get store a out >/dev/null 2>&1 && fail "a was served whole"
	fi
	run 0 "$CAIRN" fsck store --repair
	run 0 "$CAIRN" fsck store
	prints '^whole$'
	run 0 "$CAIRN" get store b out
	same b out
	run 1 "$CAIRN" get store a out
done
finish
