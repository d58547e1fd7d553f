#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# kill -9 at thirty moments of a put of 200 MiB and of a get: the version before is whole or the new one, and nothing is left.
. "$(dirname "$0")/lib.sh"
trap 'kill -9 $child 2>/dev/null; rm -rf "$T"' EXIT
cd "$T" || exit 1
child=
M=1048576

random v0 $((200 * M))
cp v0 v1
printf other | dd of=v1 conv=notrunc bs=1 seek=$M status=none # after one block all keys differ
run 0 "$CAIRN" put s f v0 --budget 1G --pin # else what the killed ones left may push it out
start=$(date +%s%N)
run 0 "$CAIRN" put s probe v1
took_us=$((($(date +%s%N) - start) / 1000))
run 0 "$CAIRN" session s forget probe
now=v0
news=0 olds=0
for round in {1..30}; do
	next=v0
	[ $now = v1 ] || next=v1
	printf 'round %d' $round | dd of=$next conv=notrunc bs=1 seek=$((2 * M + round)) status=none
	"$CAIRN" put s f $next --pin >out 2>err &
	child=$!
	sleep "$(awk -v us=$took_us -v n=$round 'BEGIN { srand(n); printf "%.4f", rand() * us * 1.1 / 1e6 }')"
	kill -9 $child 2>/dev/null
	wait $child 2>/dev/null
	running="round $round: get"
	"$CAIRN" get s f got >"$T/out" 2>"$T/err" || fail "neither version is whole"
	if cmp -s got $next; then
		now=$next
		news=$((news + 1))
	elif cmp -s got $now; then
		olds=$((olds + 1))
	else
		fail "neither the version before nor the new one"
	fi
	[ $failures -gt 3 ] && break
	[ $SECONDS -gt 60 ] && [ $round -ge 10 ] && { echo "slow machine: $round rounds"; break; }
	if [ $((round % 10)) -eq 0 ] && "$CAIRN" help fsck >/dev/null 2>&1; then
		run 0 "$CAIRN" fsck s
	fi
done
echo "$news new, $olds as before"
check "some were killed in time" test $olds -ge 3
run 0 "$CAIRN" ls s
prints '^1 session'

# A get that is killed leaves FILE as it was, and nothing beside it.
mkdir out.d
echo mine >out.d/f
for round in {1..8}; do
	"$CAIRN" get s f out.d/f >out 2>err &
	child=$!
	sleep 0.0$((RANDOM % 9 + 1))
	kill -9 $child 2>/dev/null
	wait $child 2>/dev/null
	[ "$(cat out.d/f | head -c 5)" = mine ] || same out.d/f got
	check "nothing beside it" test "$(ls -A out.d)" = f
done
# A store that is killed while it is made is made by the next put.
for round in {1..15}; do
	rm -rf fresh
	"$CAIRN" put fresh a v0 --budget 256M >out 2>err &
	child=$!
	sleep "$(awk -v n=$round 'BEGIN { printf "%.3f", 0.004 * n }')"
	kill -9 $child 2>/dev/null
	wait $child 2>/dev/null
	run 0 "$CAIRN" put fresh b "$CAIRN_SOURCE/README.md" --budget 256M
	run 0 "$CAIRN" get fresh b got.b
	same "$CAIRN_SOURCE/README.md" got.b
done
finish
