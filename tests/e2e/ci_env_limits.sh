#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Too few file descriptors, too little memory, files that may not grow: one line, and never a loss of what was there.
. "$(dirname "$0")/lib.sh"
cd "$T" || exit 1

random a 2500000
random b 1500000
run 0 "$CAIRN" put s a a --budget 96M

# limited ULIMIT...: with that limit each verb works, or says one line with status 2; afterwards all is whole.
limited()
{
	local words status
	for words in "put s b b" "get s a got" "ls s" "put new b b --budget 96M"; do
		running="ulimit $*; $words"
		rm -f got
		(ulimit "$@" && exec "$CAIRN" $words) 2>&1 >"$T/out" | cat >"$T/err"
		status=${PIPESTATUS[0]}
		case $status in
			0) quiet ;;
			2) says '^cairn [a-z]+: .' ;;
			*) fail "exit status $status" ;;
		esac
		[ ! -e got ] || same a got
	done
	# What it left half made does not stand in the way.
	run 0 "$CAIRN" put new b b --budget 96M
	run 0 "$CAIRN" get new b got
	same b got
	rm -rf new
	run 0 "$CAIRN" get s a got
	same a got
	"$CAIRN" get s b got >out 2>err && same b got
	"$CAIRN" session s forget b >out 2>err
}

for files in 5 7 8 10 12 13; do # fewer, and the program can not be loaded
	limited -n $files
done
# Enough for anybody.
(ulimit -n 16 && exec "$CAIRN" put s b b) >out 2>err || fail "put with 16 files"
(ulimit -n 16 && exec "$CAIRN" get s a got) >out 2>err || fail "get with 16 files"

if ! grep -qaE '__(asan|tsan)_init' "$CAIRN"; then # they take terabytes of addresses
	for kib in 30000 100000 150000 180000 220000 300000; do
		limited -v $kib
	done
fi

# Files that may not grow: SIGXFSZ does not end it without a word.
for kib in 0 1000 6000 20000; do
	limited -f $kib
done
running="ulimit -f 20000; put s big"
random big 60000000
run 0 "$CAIRN" put large a a --budget 256M
(ulimit -f 20000 && exec "$CAIRN" put large big big) >"$T/out" 2>"$T/err"
check "status 2" test $? -eq 2
says 'large|size limit|room|ulimit'
run 0 "$CAIRN" get large a got
same a got
run 0 "$CAIRN" put large big big
run 0 "$CAIRN" get large big got
same big got
finish
