#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# `cairn put` is killed at random moments. What it said was put is there, byte by byte, and the store always opens.
set -u
T=$(mktemp -d)
trap 'rm -rf "$T"' EXIT
cd "$T" || exit 1
rounds=${CAIRN_TORTURE_ROUNDS:-8}
for i in 1 2 3 4; do
	head -c $((i * 700000 + 13)) /dev/urandom >"file$i"
done
said=
for ((round = 1; round <= rounds; round++)); do
	i=$((RANDOM % 4 + 1))
	"$CAIRN" put store "name$round" "file$i" --budget 256M >out 2>err &
	child=$!
	sleep "0.$(printf %02d $((RANDOM % 60)))"
	kill -9 $child 2>/dev/null
	wait $child 2>/dev/null
	status=$?
	if [ $status -eq 0 ]; then
		said="$said $round:$i"
	elif [ $status -ne 137 ]; then
		echo "FAILED: round $round: cairn put ended with status $status"
		cat err
		exit 1
	fi
	for each in $said; do
		rm -f got
		if ! "$CAIRN" get store "name${each%%:*}" got 2>err || ! cmp -s got "file${each##*:}"; then
			echo "FAILED: round $round: name${each%%:*} was put, and is not there"
			cat err
			exit 1
		fi
	done
	# One that was cut off is whole or is not there.
	if [ $status -eq 137 ] && [ -e store ]; then
		rm -f got
		if "$CAIRN" get store "name$round" got 2>err; then
			cmp -s got "file$i" || { echo "FAILED: round $round: half of a file came back"; exit 1; }
		fi
	fi
done
echo "$rounds rounds, put before they were killed:$(echo "$said" | wc -w)"
