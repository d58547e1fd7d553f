#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# One process owns a store: the others are told which, and its end, however it comes, sets the store free.
. "$(dirname "$0")/lib.sh"
trap 'kill -9 $owner $reader 2>/dev/null; rm -rf "$T"' EXIT
cd "$T" || exit 1
owner= reader=

random file 2000000
run 0 "$CAIRN" put s a file --budget 64M
mkfifo pipe

# own: a put that waits for more input holds the store; its process is $owner.
own()
{
	"$CAIRN" put s slow - <pipe >owner.out 2>owner.err &
	owner=$!
	exec 8>pipe
	for try in {1..200}; do
		[ "$(cat s/lock 2>/dev/null)" = $owner ] && return
		sleep 0.02
	done
	fail "no owner after 4 s"
}

own
for words in "put s b file" "ls s" "get s a got" "stat s" "session s list" "session s forget a" "drop s --session a --yes" \
	"explain s a"; do
	run 2 "$CAIRN" $words
	says "^cairn [a-z]+: s is open in process $owner: "
done
check "no file" test ! -e got
# By another way to the same directory.
ln -s s link
run 2 "$CAIRN" ls link
says "process $owner"

# A quiet end.
exec 8>&-
wait $owner
check "put ends well" test $? -eq 0
run 0 "$CAIRN" ls s
prints ' slow$'

# kill -9: free as soon as the process is gone, and nothing of it is there.
for signal in KILL TERM HUP; do # bash lets what runs behind it ignore INT
	"$CAIRN" session s forget slow >out 2>err
	own
	kill -$signal $owner
	wait $owner 2>/dev/null
	status=$?
	exec 8>&-
	check "it says that it was ended by $signal" test $status -gt 128
	run 0 "$CAIRN" put s b file
	run 0 "$CAIRN" get s a got
	same file got
	run 1 "$CAIRN" get s slow got
done
# ... and without waiting for the kernel to take it down, as a supervisor that restarts it.
own
kill -9 $owner
run 0 "$CAIRN" ls s
wait $owner 2>/dev/null
exec 8>&-

# Who looks holds it too, beside others who look. The text does not name a process of the past.
random big 20000000
run 0 "$CAIRN" put s big big
old=$(cat s/lock)
mkfifo out.pipe
"$CAIRN" get s big - --read-only >out.pipe 2>reader.err &
reader=$!
exec 7<out.pipe
head -c 1000 <&7 >/dev/null
run 0 "$CAIRN" ls s
run 2 "$CAIRN" put s b file
says 's is (open|being read)'
grep -qw "$old" "$T/err" && fail "process $old has ended; it is $reader"
exec 7<&-
wait $reader
run 0 "$CAIRN" put s b file

# A number that is left in the file `lock` owns nothing.
echo 1 >s/lock
run 0 "$CAIRN" put s b file
printf 'no number at all' >s/lock
run 0 "$CAIRN" ls s
rm s/lock
run 0 "$CAIRN" ls s
run 0 "$CAIRN" put s b file
finish
