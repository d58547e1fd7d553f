#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# cairnd reads its configuration anew on SIGHUP: what can change at once does, no client notices, and a bad file changes
# nothing.
. "$(dirname "$0")/lib_serve.sh"
random big 20000000

# conf LINE...: the configuration, each line as it is.
conf()
{
	printf '%s\n' "dir: $T/s" "memory: 32MiB" "flash: [\"$T/flash.cairn:128MiB\"]" "$@" >c.yaml
}
# hup PATTERN: reloads, and waits for a line like it in what is said from here on.
hup()
{
	local from
	from=$(wc -l <server.log)
	kill -HUP $server
	running="reload"
	for _ in $(seq 100); do
		tail -n "+$((from + 1))" server.log | grep -Eqe "$1" && return
		sleep 0.05
	done
	fail "the log has no line like: $1: $(cat server.log)"
}

conf
serve c.yaml

# A client that holds a connection in the middle of a put, over all that follows.
mkfifo pipe
"$CAIRN" put "unix:$T/s/cairn.sock" held - -q <pipe 2>put.err &
holder=$!
exec 8>pipe
head -c 10000000 big >&8

conf "log: json" "socket_mode: 0660" "listen: [\"unix:$T/s/cairn.sock\", \"unix:$T/more.sock\"]"
hup '"msg":"reloaded"'
check "lines are JSON" python3 -c 'import json, sys
lines = [json.loads(x) for x in open("server.log") if x.startswith("{")]
sys.exit(not (lines and all("time" in x and "level" in x for x in lines)))'
check "the mode changed" test "$(stat -c %a s/cairn.sock)" = 660
run 0 "$CAIRN" put "unix:$T/more.sock" other big
check "the first place goes on" "$CAIRN" ls "unix:$T/s/cairn.sock"

# A bad file is one line, and changes nothing.
printf 'dir: x\nmemry: 1\n' >c.yaml
hup '"msg":"the configuration was not taken: nothing has changed","why":"c.yaml:2: there is no key'
run 0 "$CAIRN" ls "unix:$T/more.sock"

# Limits that the store can not hold are such a fault; others hold from now on.
conf "tenants: {a: {memory_reserved: 1TiB}}"
hup 'nothing has changed","why":"limits of a: more memory is reserved than there is'
conf "tenants: {a: {memory: 8MiB}}"
hup 'msg=changed key=tenants'

# What needs a restart says so; the rest of the file counts.
conf "memory_x: 1"
sed -i 's/memory_x: 1/io_threads: 3/; s/^memory: .*/memory: 64MiB/' c.yaml
hup 'msg=reloaded'
for key in memory io_threads; do
	check "$key needs a restart" grep -Eq "level=warning msg=\"a change that needs a restart\" key=$key" server.log
done
check "nothing else does" test "$(grep -c 'needs a restart' server.log)" -eq 2
check "the place is gone" test ! -e more.sock
run 0 "$CAIRN" stat "unix:$T/s/cairn.sock" --json
json 'j["tiers"][0]["capacity_bytes"] <= 32 << 20'

# The client never noticed.
tail -c +10000001 big >&8
exec 8>&-
wait $holder
status=$?
running="the put over all reloads: $(cat put.err)"
check "status 0, not $status" test $status -eq 0
run 0 "$CAIRN" get "unix:$T/s/cairn.sock" held got
same big got
end
finish
