#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Two users: what one of them keeps is his alone, and the other is told so in one line.
. "$(dirname "$0")/lib.sh"
[ "$(id -u)" -eq 0 ] && setpriv --reuid nobody --regid nogroup --clear-groups "$CAIRN" --version >/dev/null 2>&1 ||
	{ echo "skipped: needs root, to become nobody, and a program that nobody can run"; exit 77; }
cd "$T" || exit 1
chmod 755 "$T"
umask 022
nobody() { setpriv --reuid nobody --regid nogroup --clear-groups "$@"; }

random file 2000000
mkdir mine
install -d -o nobody -g nogroup his
run 0 "$CAIRN" put mine/s a file --budget 64M
for file in mine/s/*; do
	running=$file
	check "only its owner reads and writes it" test "$(stat -c %a "$file")" = 600
done

# Another user's store.
for words in "ls mine/s" "get mine/s a his/got" "stat mine/s" "session mine/s list" "put mine/s b file" "explain mine/s a" \
	"session mine/s forget a" "drop mine/s --session a --yes"; do
	run 2 nobody "$CAIRN" $words
	says 'mine/s.*Permission denied'
done
# ... nor can he keep its owner out.
setpriv --reuid nobody --regid nogroup --clear-groups sh -c 'exec 9<mine/s/lock && flock --exclusive --nonblock 9 && exec sleep 60' 2>/dev/null &
locker=$!
sleep 0.2
run 0 "$CAIRN" put mine/s c file
kill $locker 2>/dev/null
wait $locker 2>/dev/null

# Where he may not write, or look.
run 2 nobody "$CAIRN" put mine/new a file
says 'mine/new: Permission denied'
check "nothing was made" test ! -e mine/new
chmod 700 mine
run 2 nobody "$CAIRN" ls mine/s
says 'mine/s.*Permission denied'
run 2 nobody "$CAIRN" put mine/s b file
says 'mine/s.*Permission denied'
chmod 755 mine
install -d -m 311 -o nobody blind
run 2 nobody "$CAIRN" put blind a file
says 'blind.*Permission denied'

# A store that is lent for reading, as an administrator would do it.
chmod 644 mine/s/*
run 0 nobody "$CAIRN" get mine/s a his/got
same file his/got
run 0 nobody "$CAIRN" ls mine/s
run 0 nobody "$CAIRN" stat mine/s
run 2 nobody "$CAIRN" put mine/s b file
says 'mine/s.*Permission denied'
run 0 "$CAIRN" put mine/s b file

# His own store; files that he can not read or replace.
install -m 600 file secret
run 2 nobody "$CAIRN" put his/s a secret
says '^cairn put: secret: Permission denied'
check "no store for that" test ! -e his/s
run 0 nobody "$CAIRN" put his/s a file --budget 64M
run 2 nobody "$CAIRN" get his/s a mine/got
says 'mine/got: cannot be written: Permission denied'
install -m 644 secret his/readable
run 0 nobody "$CAIRN" get his/s a his/got
same file his/got
# root may use it, and what he makes does not lock its owner out.
run 0 "$CAIRN" put his/s b file
run 0 nobody "$CAIRN" get his/s b his/got
same file his/got
run 0 nobody "$CAIRN" put his/s c file

# A device that is not his.
run 2 nobody "$CAIRN" put his/t a file --flash "$T/mine/device:64M"
says 'mine/device: Permission denied'
run 0 nobody "$CAIRN" put his/t a file --budget 64M
finish
