#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# cairn fsck: whole, damaged, repaired; what it says for people and for programs.
. "$(dirname "$0")/lib.sh"
cd "$T" || exit 1
M=1048576

random a $((5 * M))
random b $((3 * M))
run 0 "$CAIRN" put store a a --budget 128M
run 0 "$CAIRN" put store b b
run 0 "$CAIRN" fsck store
prints ' 2 sessions, 0 problems$'
prints '^whole$'
quiet
run 0 "$CAIRN" fsck store --json
json 'j["result"] == "clean" and j["counts"]["sessions"] == 2 and j["counts"]["problems"] == 0 and j["findings"] == []'
run 0 "$CAIRN" fsck store --quiet
check "no word" test ! -s out
quiet

# A bad block: found, not touched, then taken out.
python3 - <<'PYTHON' || fail "block 1 of a is not on the device"
marker = open("a", "rb").read()[1048576 + 512:1048576 + 576]
with open("store/flash.cairn", "r+b") as file:
    at = file.read().find(marker)
    assert at > 0
    file.seek(at)
    file.write(bytes([marker[0] ^ 1]))
PYTHON
before=$(md5sum <store/flash.cairn)
run 1 "$CAIRN" fsck store
says 'the store is damaged; cairn fsck --repair mends'
prints '^lost +store/flash.cairn at byte [0-9]+: '
prints '^  1 damaged part$'
run 1 "$CAIRN" fsck store --json
json 'j["result"] == "damaged" and j["counts"]["parts_damaged"] == 1 and j["findings"][0]["severity"] == "lost"'
check "nothing was written" test "$(md5sum <store/flash.cairn)" = "$before"
run 0 "$CAIRN" fsck store --repair
prints '^repaired: '
run 0 "$CAIRN" fsck store
run 1 "$CAIRN" get store a out.a
run 0 "$CAIRN" get store b out.b
same b out.b
run 0 "$CAIRN" put store a a
run 0 "$CAIRN" get store a out.a
same a out.a

# The identity, lost in both copies: fsck can make it anew.
python3 -c '
with open("store/cairn.id", "r+b") as file:
    size = len(file.read()); file.seek(0); file.write(bytes(size))'
run 2 "$CAIRN" get store a out.lost
says 'run cairn fsck'
run 1 "$CAIRN" fsck store
run 0 "$CAIRN" fsck store --repair
run 0 "$CAIRN" get store a out.again
same a out.again

# A store that somebody has open.
mkfifo fifo
"$CAIRN" put store waiting - <fifo >/dev/null 2>&1 &
pid=$!
exec 7>fifo
for _ in $(seq 500); do # not by looking: a look holds the store too
	grep -qx $pid store/lock && break
	sleep 0.01
done
run 2 "$CAIRN" fsck store
says "$pid"
exec 7>&-
wait $pid
run 0 "$CAIRN" fsck store

# What is no store.
mkdir empty foreign
echo x >foreign/file
run 2 "$CAIRN" fsck empty
says 'empty'
run 2 "$CAIRN" fsck foreign
says 'foreign'
run 2 "$CAIRN" fsck a
finish
