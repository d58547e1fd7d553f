#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What people give as a store, and as a name: odd ones work, wrong ones are named in one line and left as they are.
. "$(dirname "$0")/lib.sh"
cd "$T" || exit 1

random file 1500
# works STORE: put, ls, stat and get.
works()
{
	run 0 "$CAIRN" put "$1" a file --budget 64M
	quiet
	run 0 "$CAIRN" ls "$1"
	prints '^1 session'
	run 0 "$CAIRN" get "$1" a got
	same file got
}

# Not stores.
cp file not.store
run 2 "$CAIRN" put not.store a file
says 'not.store is not a directory'
run 2 "$CAIRN" ls not.store
says 'not.store is not a directory'
same file not.store
mkfifo fifo
for place in fifo /dev/null; do
	run 2 timeout 10 "$CAIRN" put $place a file
	says "$place is not a directory"
	run 2 timeout 10 "$CAIRN" ls $place
	says "$place is not a directory"
done
mkdir foreign
echo mine >foreign/mine
run 2 "$CAIRN" put foreign a file
says 'foreign is not a cairn store \(it holds mine\)'
run 2 "$CAIRN" ls foreign
says 'foreign is not a cairn store'
check "nothing was added" test "$(ls -A foreign)" = mine
run 2 "$CAIRN" put . a file
says '\. is not a cairn store'
check "no lock" test ! -e lock
run 2 "$CAIRN" put missing/parent a file
says 'missing/parent: No such file'
check "no parent was made" test ! -e missing
run 2 "$CAIRN" put '' a file
says 'give a directory'
run 2 "$CAIRN" put tcp://127.0.0.1:1 a file
says 'no cairnd at tcp://127.0.0.1:1'
run 2 "$CAIRN" put unix: a file
says 'without the path'
ln -s nowhere dangling
run 2 "$CAIRN" put dangling a file
says 'dangling.*No such file'
check "the link's target was not made" test ! -e nowhere
ln -s loop loop
run 2 "$CAIRN" ls loop
says 'loop.*symbolic links'

# Empty ones: only put makes a store.
mkdir empty found found/lost+found
for verb in "ls empty" "stat empty" "get empty a got" "session empty list" "ls found"; do
	run 2 "$CAIRN" $verb
	says 'is empty: there is no cairn store'
done
check "looking makes nothing" test -z "$(ls -A empty)"
works empty
works found
check "lost+found stays" test -d found/lost+found

# By links, with dots and slashes, with a scheme.
mkdir real
ln -s real link
works link/
mkdir inner
works ./inner/../inner/
works dir:schemed
run 0 "$CAIRN" ls schemed
run 0 "$CAIRN" ls dir:"$T"/schemed/

# Names that shells and terminals have trouble with.
works 'with space'
works $'with\nnewline'
works "quote'\"\\"
works 'Größe 日本'
works $'not utf-8 \xff\xfe'
works './-dash'
run 0 "$CAIRN" put --budget 64M -- -dashed a file
run 0 "$CAIRN" ls ./-dashed
run 2 "$CAIRN" put $'two\nlines/missing' a file
says '^cairn put: .*two.*lines'
run 2 "$CAIRN" ls $'red\e[31m'
says 'red'
check "no escape sequence reaches the terminal" test "$(tr -cd '\033' <"$T/err" | wc -c)" -eq 0

# Long ones: up to what the message says.
long=$(printf 'd%.0s' {1..200})
works $long
run 2 "$CAIRN" put ${long}d a file
says '200 bytes'
run 2 "$CAIRN" put "$(printf 'd/%.0s' {1..3000})" a file
says '200 bytes|too long'
run 2 "$CAIRN" put "$(printf 'd%.0s' {1..100000})" a file
says '200 bytes|too long'
deep=$(printf 'deep_%.0s' {1..36})
mkdir -p "$deep/$deep/$deep"
(cd "$deep/$deep/$deep" && "$CAIRN" put s a "$T/file" --budget 64M && "$CAIRN" get s a got && cmp -s got "$T/file") \
	>out 2>err || fail "a short path from deep inside"

# Sessions: any name is data, none is a path.
names=(.. . / ../../x a/b -dash --ttl ' ' '*' '$HOME' "it's" '"' $'n\nl' $'\e[31mred' 'größer' '日本' $'\xff\xfe' "$(printf 'x%.0s' {1..255})")
for name in "${names[@]}"; do
	printf '%s' "$name" >one
	run 0 "$CAIRN" put s --budget 64M -- "$name" one
	quiet
done
for name in "${names[@]}"; do
	printf '%s' "$name" >one
	run 0 "$CAIRN" get s -- "$name" got
	same one got
done
run 0 "$CAIRN" session s show -- ../../x
run 0 "$CAIRN" ls s
prints "^${#names[@]} sessions"
check "a line each" test "$(wc -l <"$T/out")" -eq $((${#names[@]} + 2))
check "no escape sequence reaches the terminal" test "$(tr -cd '\033' <"$T/out" | wc -c)" -eq 0
run 0 "$CAIRN" ls s --json
json "len(set(s['name'] for s in j['sessions'])) == ${#names[@]}"
run 2 "$CAIRN" put s "$(printf 'x%.0s' {1..256})" file
says '256 bytes.*1 to 255'
run 2 "$CAIRN" get s "$(printf 'x%.0s' {1..256})" got
says '256 bytes.*1 to 255'
run 2 "$CAIRN" put s '' file
says '1 to 255'
for name in .. / --ttl $'\xff\xfe' "$(printf 'x%.0s' {1..255})"; do
	run 0 "$CAIRN" session s forget -- "$name"
	run 1 "$CAIRN" get s -- "$name" got
	says 'no session'
done
check "nothing else was made" test -z "$(ls -A s | grep -vxE 'cairn\.(id|gone)|flash\.cairn|lock')"

# Devices: relative ones are where they were when they were given.
mkdir disk
run 0 "$CAIRN" put far a file --flash disk:96M
check "it is there" test -f disk/flash.cairn
(cd / && "$CAIRN" get "$T/far" a "$T/got") >out 2>err || { fail "from another directory"; cat err; }
(cd / && "$CAIRN" put "$T/far" b "$T/file") >out 2>err || { fail "put from another directory"; cat err; }
mv far moved
run 0 "$CAIRN" get moved a got
run 2 "$CAIRN" put other a file --flash disk:96M
says 'disk/flash.cairn.*(exists|another store)'
run 0 "$CAIRN" get moved a got
same file got
run 2 "$CAIRN" put other a file --flash missing/device:96M
says 'missing/device.*No such file'

# A store that moves, or is copied, is the same store.
mv s elsewhere
run 0 "$CAIRN" put elsewhere a file
cp -a elsewhere copy
run 0 "$CAIRN" get copy a got
same file got
finish
