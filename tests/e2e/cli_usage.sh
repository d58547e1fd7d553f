#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Wrong words: one clear line that says what to do, exit status 2, and nothing made.
. "$(dirname "$0")/lib.sh"
cd "$T" || exit 1

run 0 "$CAIRN" help
prints '^  put '
quiet
run 0 "$CAIRN" --help
run 0 "$CAIRN" --version
prints '^cairn [0-9]+\.[0-9]+\.[0-9]+$'
for verb in put get ls stat session explain key drop fsck bench; do
	run 0 "$CAIRN" help $verb
	prints "^Usage: cairn $verb "
	prints '^Examples:'
	check "help of $verb within 80 columns" test "$(wc -L <"$T/out")" -le 80
	run 0 "$CAIRN" $verb --help
done

run 2 "$CAIRN"
says 'verb is missing; see cairn help'
run 2 "$CAIRN" pit
says 'no verb "pit"; did you mean "put"'
run 2 "$CAIRN" help sesion
says 'did you mean "session"'
run 2 "$CAIRN" --json
says 'options stand behind'
run 2 "$CAIRN" put
says 'STORE is missing; usage: cairn put STORE NAME FILE'
run 2 "$CAIRN" put s n
says 'FILE is missing'
run 2 "$CAIRN" put s n f more
says '"more" is one argument too many'
run 2 "$CAIRN" put --tll 3 s n f
says 'unknown option --tll; did you mean --ttl'
run 2 "$CAIRN" get s n f --pin
says 'unknown option --pin'
run 2 "$CAIRN" put s n f --ttl
says 'option --ttl needs a value'
run 2 "$CAIRN" put s n f --pin=3
says 'takes no value'
run 2 "$CAIRN" put -x s n f
says 'unknown option -x'
run 2 "$CAIRN" put s n f --ttl soon
says '--ttl soon: not a time'
run 2 "$CAIRN" put s n f --memory 10X
says '--memory 10X: not a size'
run 2 "$CAIRN" put s n f --flash x:10Q
says '"10Q" is not a size'
run 2 "$CAIRN" put s n /dev/null --flash x:10M --budget 10M
says '--budget and --flash together'
run 2 "$CAIRN" put s n /dev/null --read-only
says '--read-only with a verb that writes'
run 2 "$CAIRN" put s n f --durability object
says '--durability object: unknown'
run 2 "$CAIRN" put s "$(printf 'x%.0s' {1..256})" /dev/null
says 'NAME has 256 bytes'
run 2 "$CAIRN" put s '' /dev/null
says 'NAME has 0 bytes'
run 2 "$CAIRN" put s n missing
says 'missing: No such file or directory'
run 2 "$CAIRN" put s n "$T"
says 'is a directory'
run 2 "$CAIRN" get s n - --json
says '--json with the file on stdout'
run 2 "$CAIRN" ls s --parts --spaces
says '--parts and --spaces together'
run 2 "$CAIRN" ls s name
says 'cairn session STORE show NAME'
run 2 "$CAIRN" session s shwo
says 'did you mean "show"'
run 2 "$CAIRN" session s show
says 'NAME is missing'
run 2 "$CAIRN" drop s
says 'what to drop is missing'
run 2 "$CAIRN" drop s --owner ada
says 'what to drop is missing'
run 2 "$CAIRN" drop s --key 1f03
says 'KEY is missing'
run 2 "$CAIRN" drop s --session n --space 1f03
says 'two of --session, --space, --key'
check "nothing was made" test "$(find . -mindepth 1 ! -name out ! -name err | wc -l)" -eq 0

# Stores that are none.
for verb in "get missing n f" "ls missing" "stat missing" "session missing show n" "explain missing n" \
	"drop missing --session n --yes" "fsck missing"; do
	run 2 "$CAIRN" $verb
	says 'missing.*No such file'
done
check "no store was made" test ! -e missing
touch file
mkdir foreign empty
echo x >foreign/precious
run 2 "$CAIRN" put file n /dev/null
says 'file is not a directory'
run 2 "$CAIRN" ls empty
says 'empty: there is no cairn store'
run 2 "$CAIRN" put foreign n /dev/null
says 'foreign is not a cairn store \(it holds precious\)'
check "foreign files stay" test "$(ls foreign)" = precious
run 2 "$CAIRN" put no/such/place n /dev/null
says 'no/such/place'

# The output can not be written.
if [ -e /dev/full ]; then
	run 2 bash -c '"$0" help >/dev/full' "$CAIRN"
	says 'cannot write the output: No space left'
fi
finish
