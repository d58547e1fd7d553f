#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The program as scripts, cron and containers run it: streams closed or full, pipes that end early, no HOME, no locale.
. "$(dirname "$0")/lib.sh"
cd "$T" || exit 1

random a 3000000
run 0 "$CAIRN" put s a a --budget 64M

# Closed: what needs the stream fails, the rest does its work, and nothing is written where it does not belong.
(exec "$CAIRN" put s b a <&- >out 2>err) || fail "put without stdin"
(exec "$CAIRN" put s c - <&- >out 2>err)
check "no stdin to read: status 2" test $? -eq 2
(exec "$CAIRN" ls s >&- 2>err)
check "no stdout to write: status 2" test $? -eq 2
check "it says so" grep -q 'output' err
(exec "$CAIRN" get s a - >&- 2>err)
check "no stdout for the file: status 2" test $? -eq 2
(exec "$CAIRN" ls s 2>&- >out) || fail "ls without stderr"
(exec "$CAIRN" ls nothing 2>&- >out)
check "an error without stderr: status 2" test $? -eq 2
for words in "put s d a" "get s a got" "session s pin a" "session s pin nobody" "session s unpin a" "ls s" "stat s --json" \
	"session s forget nobody" "put s e -" "get s a -"; do
	(exec "$CAIRN" $words <&- >&- 2>&-)
	status=$?
	running="$words, all streams closed"
	check "status $status" test $status -le 2
	grep -aqvx '[0-9]*' s/lock && fail "its words went into the file lock: $(head -1 s/lock | tr -cd '[:print:]')"
	(exec "$CAIRN" $words -q <&- 2>&- >/dev/null)
	check "status $?" test $? -le 2
done
same a got
for name in a b d; do
	run 0 "$CAIRN" get s $name got
	same a got
done
run 1 "$CAIRN" get s e got

# Full.
if [ -c /dev/full ]; then
	for words in "ls s" "ls s --json" "stat s" "get s a -" "help" "help put" "--version" "key --weights a"; do
		running="$words >/dev/full"
		"$CAIRN" $words >/dev/full 2>"$T/err"
		check "status 2" test $? -eq 2
		says 'No space left'
	done
	run 2 bash -c '"$0" ls s --json 2>/dev/full >/dev/full' "$CAIRN"
fi

# Pipes whose reader goes away: as any program, without a word.
for i in {1..20}; do
	"$CAIRN" put s "$(printf 'a long name %0200d' $i)" a -q || fail "put $i"
done
for words in "ls s" "ls s --json" "ls s --parts" "get s a -"; do
	"$CAIRN" $words 2>err | head -1 >out
	status=${PIPESTATUS[0]}
	running="$words | head -1"
	case $status in 0 | 141) ;; *) fail "status $status" ;; esac
	check "no word" test ! -s err
	check "a line" test -s out
done
"$CAIRN" ls s 2>err | true
status=${PIPESTATUS[0]}
case $status in 0 | 141) ;; *) fail "ls | true: status $status" ;; esac
run 0 "$CAIRN" put s a a

# From a pipe, and from things that are no files.
run 0 bash -c 'cat a | "$0" put s piped -' "$CAIRN"
run 0 "$CAIRN" get s piped got
same a got
mkfifo fifo
cat a >fifo &
run 0 "$CAIRN" put s fifo fifo
run 0 "$CAIRN" get s fifo got
same a got
run 0 "$CAIRN" put s none /dev/null
run 0 "$CAIRN" get s none got
check "empty" test ! -s got -a -e got

# No environment, or a strange one.
run 0 env -i "$CAIRN" ls s
run 0 env -i LANG=C LC_ALL=C "$CAIRN" put s größer a
prints '^größer: '
run 0 env LC_ALL=C "$CAIRN" ls s
prints ' größer$'
for settings in LC_ALL=no_SUCH.locale TZ=nowhere LANG=C.UTF-8 HOME=/nonexistent TERM= TMPDIR=/nonexistent COLUMNS=1; do
	run 0 env "$settings" "$CAIRN" ls s
	run 0 env "$settings" "$CAIRN" get s a got
	same a got
done
run 0 env -i -C / "$CAIRN" stat "$T/s"
# Numbers in JSON have points, whatever the locale.
run 0 env LC_ALL=de_DE.UTF-8 LC_NUMERIC=de_DE.UTF-8 "$CAIRN" stat s --json
json 'j["sessions"] > 20'

# A terminal of no size, a background job, nohup.
run 0 nohup "$CAIRN" get s a got
run 0 setsid "$CAIRN" get s a got
if command -v script >/dev/null; then
	script -qec "'$CAIRN' put s tty a" /dev/null </dev/null >"$T/out" 2>"$T/err" || fail "put on a terminal"
	prints 'tty: 2.9 MiB'
fi
finish
