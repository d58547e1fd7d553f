#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# put and get: files of all sizes come back whole, replace each other at once, and leave nothing half done.
. "$(dirname "$0")/lib.sh"
cd "$T" || exit 1
M=1048576

# Sizes around a block, and more than what moves at once.
for size in 0 1 4095 $((M - 1)) $M $((M + 1)) $((37 * M)); do
	random "in.$size" $size
	run 0 "$CAIRN" put store "name $size" "in.$size" --budget 256M
	prints "^name $size: .* in .* block.*, durable on flash"
	quiet
done
for size in 0 1 4095 $((M - 1)) $M $((M + 1)) $((37 * M)); do
	run 0 "$CAIRN" get store "name $size" "out.$size"
	prints 'whole'
	quiet
	same "in.$size" "out.$size"
done
run 0 "$CAIRN" ls store
prints '^7 sessions, '

# By pipe, both ways; a second put finds its blocks.
run 0 bash -c '"$0" put store piped - <"$1"' "$CAIRN" in.$((37 * M))
prints '37 blocks were there already'
"$CAIRN" get store piped - 2>err >out.piped || fail "get to a pipe"
same in.$((37 * M)) out.piped
check "nothing on stderr" test ! -s err
"$CAIRN" get store piped - | cmp -s - in.$((37 * M)) || fail "get through a pipe"
"$CAIRN" get store piped - 2>err | head -c 100 >/dev/null
case ${PIPESTATUS[0]} in 0 | 141) ;; *) fail "get into a closed pipe" ;; esac
check "no word about a closed pipe" test ! -s err
run 0 "$CAIRN" get store piped /dev/null

# In batches of less memory than they need.
run 0 "$CAIRN" put small big in.$((37 * M)) --budget 128M --memory 8M
run 0 "$CAIRN" get small big out.small --memory 8M
same in.$((37 * M)) out.small

# Not durable at once, but there after the end.
run 0 "$CAIRN" put store later in.$((M + 1)) --durability none
prints 'not yet durable'
run 0 "$CAIRN" get store later out.later
same in.$((M + 1)) out.later

# Replace: the second is got, the first is gone, links and modes of FILE stay.
random first $((3 * M + 5))
random second $((2 * M + 7))
run 0 "$CAIRN" put store twice first
run 0 "$CAIRN" put store twice second
echo old >target
chmod 640 target
ln -s target link
run 0 "$CAIRN" get store twice link
same second target
check "the link stays" test -L link
check "the mode stays" test "$(stat -c %a target)" = 640
run 0 "$CAIRN" session store show twice
prints 'for the 2nd time'
(umask 027 && run 0 "$CAIRN" get store twice fresh)
check "a new file has the usual mode" test "$(stat -c %a fresh)" = 640

# Owners and tenants have names of their own.
run 0 "$CAIRN" put store twice first --owner ada
run 0 "$CAIRN" put store twice in.1 --tenant acme --owner bob
run 0 "$CAIRN" get store twice out.ada --owner ada
same first out.ada
run 0 "$CAIRN" get store twice out.bob --owner bob --tenant acme
same in.1 out.bob
run 0 "$CAIRN" get store twice out.none
same second out.none

# Not there: status 1, FILE untouched, and how to find it.
echo mine >mine
cp mine mine.before
run 1 "$CAIRN" get store nothing mine
says 'no session "nothing" in the store; see cairn ls'
run 1 "$CAIRN" get store twise mine
says 'did you mean "twice"'
run 1 "$CAIRN" get store twice mine --owner eve
says 'no session "twice"'
run 0 "$CAIRN" put store lonely in.1 --owner ada
run 1 "$CAIRN" get store lonely mine
says 'one of owner "ada": add --owner ada'
run 0 "$CAIRN" put store alone in.1 --tenant acme
run 1 "$CAIRN" get store alone mine
says 'one of tenant "acme": add --tenant acme'
same mine mine.before

# Where it can not be written.
run 2 "$CAIRN" get store twice no/such/folder
says 'no/such/folder: cannot be written: No such file'
run 2 "$CAIRN" get store twice "$T"
says 'is a directory; give the name of a file'
if [ -e /dev/full ]; then
	run 2 "$CAIRN" get store twice /dev/full
	says '/dev/full: cannot be written: No space left'
fi

# A file that does not fit leaves what is there.
random large $((40 * M))
run 0 "$CAIRN" put tight small in.$M --budget 32M
run 2 "$CAIRN" put tight large large
says 'large has 40.0 MiB, the store.s flash 32.0 MiB'
run 2 bash -c 'cat large | "$0" put tight large -' "$CAIRN"
says 'nothing was saved'
run 1 "$CAIRN" get tight large mine
same mine mine.before

# A file that grows while it is read is not saved.
random growing $((24 * M))
("$CAIRN" put store growing growing >grow.out 2>grow.err; echo $? >grow.rc) &
for _ in $(seq 40); do
	echo more >>growing
	sleep 0.005
	[ -e grow.rc ] && break
done
wait
if [ "$(cat grow.rc)" -ne 0 ]; then
	check "it says why" grep -q 'growing changed while it was read; nothing was saved' grow.err
	run 1 "$CAIRN" get store growing mine
fi

# Interrupted: the old one stays, nothing else is visible.
mkfifo fifo
run 0 "$CAIRN" put store steady first
"$CAIRN" put store steady - <fifo >int.out 2>int.err &
pid=$!
exec 7>fifo
cat second second second second second second second second second >&7
kill -TERM $pid
exec 7>&-
wait $pid
check "it ends by the signal" test $? -eq 143
check "one line" test "$(wc -l <int.err)" -eq 1
check "it says so" grep -q 'interrupted; nothing was saved' int.err
run 0 "$CAIRN" get store steady out.steady
same first out.steady
for _ in 1 2 3 4 5; do
	"$CAIRN" get store "name $((37 * M))" target 2>/dev/null >&2 &
	pid=$!
	sleep 0.0$((RANDOM % 9 + 1))
	kill -TERM $pid 2>/dev/null
	wait $pid
	[ "$(stat -c %s target)" -eq $((37 * M)) ] || same second target
done
"$CAIRN" get store "name $((37 * M))" target >/dev/null 2>&1 &
sleep 0.03
kill -KILL $! 2>/dev/null
wait $! 2>/dev/null
[ "$(stat -c %s target)" -eq $((37 * M)) ] || same second target
check "no half files" test "$(find . -name '.cairn*' | wc -l)" -eq 0

# kill -9 of a put: what was saved before is there.
"$CAIRN" put store steady - <fifo >/dev/null 2>&1 &
pid=$!
exec 7>fifo
cat second second second second second second second second second >&7
kill -KILL $pid
exec 7>&-
wait $pid 2>/dev/null
run 0 "$CAIRN" get store steady out.killed
same first out.killed

# Odd names reach the store as they are, and no terminal as they are.
odd=$(printf 'a/../b\033[31m\377 \t"x"')
run 0 "$CAIRN" put store "$odd" in.1
prints '^a/../b\\x1b\[31m\\xff \\x09"x": '
run 0 "$CAIRN" get store "$odd" out.odd
same in.1 out.odd
run 0 "$CAIRN" ls store --json
json 'any("a/../b" in s["name"] for s in j["sessions"])'

# Figures for programs; silence on request.
run 0 "$CAIRN" put store figures in.$((M + 1)) --json
json 'j["bytes"] == 1048577 and j["blocks"] == 2 and j["durability"] == "flash" and j["duration_s"] >= 0'
run 0 "$CAIRN" get store figures out.figures --json
json 'j["bytes"] == 1048577 and j["file"] == "out.figures"'
run 0 "$CAIRN" put store figures in.1 --quiet
check "no word" test ! -s out
quiet
finish
