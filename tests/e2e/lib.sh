# SPDX-License-Identifier: Apache-2.0
# What the end-to-end scripts share: a folder of their own, and asserts that go on and count.
#
#   run STATUS COMMAND...   runs it; its exit status must be STATUS; its output is in $T/out and $T/err
#   prints PATTERN          the last command's stdout has a line that matches (extended regular expression)
#   says PATTERN            its stderr is one line, and that matches
#   quiet                   it wrote nothing to stderr
#   same FILE FILE          the two files have the same bytes
#   json EXPRESSION         its stdout is JSON, and the Python expression over it (named `j`) is true
#   check WHAT COMMAND...   the command succeeds
#   finish                  the last line of a script
set -u

T=$(mktemp -d)
trap 'rm -rf "$T"' EXIT
: "${CAIRN:?set it to the program cairn}"
[ -x "$CAIRN" ] || { echo "$CAIRN is not there: build it first"; exit 1; }
: "${CAIRN_SOURCE:=$(cd "$(dirname "$0")/../.." && pwd)}"
running=
failures=0

fail()
{
	failures=$((failures + 1))
	echo "FAILED: $1"
	echo "  of: $running"
	[ -s "$T/err" ] && sed 's/^/  stderr: /' "$T/err" | head -20
	[ -s "$T/out" ] && sed 's/^/  stdout: /' "$T/out" | head -20
	return 0
}

run()
{
	local expected=$1
	shift
	running="$*"
	"$@" >"$T/out" 2>"$T/err"
	local status=$?
	[ $status -eq "$expected" ] || fail "exit status is $status, not $expected"
}

prints()
{
	grep -Eqe "$1" "$T/out" || fail "stdout has no line like: $1"
}

says()
{
	[ "$(wc -l <"$T/err")" -eq 1 ] || fail "stderr is not one line"
	grep -Eqe "$1" "$T/err" || fail "stderr is not like: $1"
}

quiet()
{
	[ ! -s "$T/err" ] || fail "stderr is not empty"
}

same()
{
	cmp -s "$1" "$2" || fail "$1 and $2 differ"
}

json()
{
	python3 -c 'import json, sys; j = json.load(open(sys.argv[1])); sys.exit(not eval(sys.argv[2]))' \
		"$T/out" "$1" 2>"$T/err" || fail "not JSON, or not so: $1"
}

check()
{
	local what=$1
	shift
	"$@" >/dev/null 2>&1 || fail "$what"
}

# random FILE BYTES: bytes that no compression shortens, the same at each run.
random()
{
	python3 -c '
import random, sys
generator = random.Random(sys.argv[1] + sys.argv[2])
with open(sys.argv[1], "wb") as file:
    left = int(sys.argv[2])
    while left:
        step = min(left, 1 << 20)
        file.write(generator.randbytes(step))
        left -= step' "$1" "$2"
}

finish()
{
	[ $failures -eq 0 ] || echo "$failures failed"
	exit $((failures != 0))
}
