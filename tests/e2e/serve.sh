#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# cairn serve: one store for many processes, its configuration, its end, and what is said when it is not there.
. "$(dirname "$0")/lib_serve.sh"

random a 3000000
random b 5000000

serve --dir s --memory 32MiB --flash "$T/flash.cairn:128MiB"
run 0 "$CAIRN" put unix:s/cairn.sock a a
run 0 "$CAIRN" put s b b # the directory is as good
run 0 "$CAIRN" get s a got
same a got
run 0 "$CAIRN" get "unix:$T/s/cairn.sock" b got
same b got
run 0 "$CAIRN" ls s --json
json 'sorted(x["name"] for x in j["sessions"]) == ["a", "b"]'
run 0 "$CAIRN" stat s --json
json 'j["devices"][0]["path"].endswith("flash.cairn")'
run 0 "$CAIRN" session s pin a
run 1 "$CAIRN" get s nobody got
says 'no session'

# Eight at once.
for i in 1 2 3 4 5 6 7 8; do
	("$CAIRN" put s "n$i" b -q && "$CAIRN" get s "n$i" "got$i" -q && cmp -s b "got$i" && touch "whole$i") &
	pids="${pids:-} $!"
done
wait $pids
running="eight at once"
check "all are whole" test "$(ls whole* | wc -l)" -eq 8

# A second one, over the directory or the socket, is one clear line.
run 2 "$CAIRN" serve --dir s
says 'open in process'
run 2 "$CAIRN" serve --dir other --listen unix:s/cairn.sock
says 'another process listens there'
check "the first goes on" "$CAIRN" get s a got
run 2 "$CAIRN" fsck s
says 'open in process'

# Killed: what it acknowledged is there, and the next one starts over its socket.
kill -9 $server
wait $server 2>/dev/null
run 2 "$CAIRN" put unix:s/cairn.sock c a
says 'no cairnd at unix:s/cairn.sock'
run 0 "$CAIRN" get s a got # nobody has the directory now
same a got
serve --dir s --memory 32MiB
run 0 "$CAIRN" get s b got
same b got
end
check "its socket is gone" test ! -e s/cairn.sock
check "and nothing tells of it" test ! -e s/daemon
run 0 "$CAIRN" get s b got

# From another server (this one, over loopback).
port=$((20000 + RANDOM % 20000))
serve --dir s --memory 32MiB --listen tcp+plain://127.0.0.1:$port
run 0 "$CAIRN" put tcp+plain://127.0.0.1:$port far b
run 0 "$CAIRN" get tcp+plain://127.0.0.1:$port far got
same b got
run 0 "$CAIRN" get s far got # the directory's way as well
same b got
run 0 "$CAIRN" ls tcp+plain://127.0.0.1:$port --json
json 'any(x["name"] == "far" for x in j["sessions"])'
run 1 "$CAIRN" get tcp+plain://127.0.0.1:$port nobody got
end
run 2 "$CAIRN" get tcp+plain://127.0.0.1:$port far got
says "no cairnd at tcp.plain://127.0.0.1:$port: Connection refused"
run 2 "$CAIRN" get tcp+plain://nowhere.invalid:1 far got
says 'no cairnd at'
run 2 "$CAIRN" get tcp://127.0.0.1:$port far got
says 'no cairnd at tcp:'

# Configuration.
cat >good.yaml <<EOF
# all of it
dir: $T/conf
listen:
  - unix:$T/sock
memory: 16MiB
in_flight: 24MiB
flash:
  - path: $T/device.cairn
    budget: 64MiB
io_threads: 2
pin_share: 40
socket_mode: 0660
log: json
log_level: debug
tenants:
  chat:
    memory: 8MiB
    memory_reserved: 4MiB
    flash: 32MiB
    flash_reserved: 16MiB
    share: 300
  "*": {memory: 4MiB, flash: 16MiB}
EOF
run 0 "$CAIRN" serve good.yaml --check
quiet
run 0 "$CAIRN" serve good.yaml --print-config
cp "$T/out" again.yaml
run 0 "$CAIRN" serve again.yaml --print-config
same again.yaml "$T/out"
serve good.yaml
run 0 "$CAIRN" put "unix:$T/sock" a a
check "the socket's mode" test "$(stat -c %a sock)" = 660
end
wrong()
{
	printf '%b' "$1" >bad.yaml
	run 2 "$CAIRN" serve bad.yaml --check
	says "$2"
}
wrong 'dir: d\nmemry: 3\n' '^cairnd: bad.yaml:2: there is no key "memry"; expected one of dir, listen'
wrong 'dir: d\nmemory: lots\n' 'bad.yaml:2: memory is "lots"; expected a size'
wrong 'dir: d\n\nmemory: [1, 2]\n' 'bad.yaml:3: memory is not a single value'
wrong 'dir: d\ndir: e\n' 'bad.yaml:2: dir is there twice'
wrong 'dir: d\nin_flight: much\n' 'bad.yaml:2: in_flight is "much"; expected a size'
wrong 'dir: d\nflash:\n  - budget: 3MiB\n' 'bad.yaml:3: a device of flash without a path'
wrong 'dir: d\nlisten: http://x\n' 'bad.yaml:2: listen is .*expected places as unix:PATH'
wrong '- a\n' 'bad.yaml:1: this is no list of keys'
wrong 'dir: "d\n' 'bad.yaml:[0-9]+: not YAML'
wrong 'pin_share: 101\ndir: d\n' 'bad.yaml:1: pin_share is "101"; expected a percentage'
wrong 'dir: d\ntenants:\n  a: {memory: 1GiB}\n  a: {}\n' 'bad.yaml:4: tenant a; expected each tenant once'
wrong 'dir: d\ntenants:\n  a:\n    memory: x\n' 'bad.yaml:4: memory of tenant a; expected a size'
wrong 'dir: d\ntenants:\n  a:\n    speed: 3\n' 'bad.yaml:4: speed of tenant a; expected one of memory, memory_reserved'
wrong 'dir: d\ntenants:\n  a: {share: 0}\n' 'bad.yaml:3: share of tenant a; expected a weight from 1'
wrong 'dir: d\ntenants:\n  a: {flash: 1GiB, flash_reserved: 2GiB}\n' 'bad.yaml:3: tenant a; expected at most so much'
wrong 'dir: d\ntenants:\n  "*": {flash_reserved: 2GiB}\n' 'bad.yaml:3: tenant \*; expected a name, where'
wrong 'dir: d\ntenants: [a]\n' 'bad.yaml:2: tenants; expected names of tenants'
wrong 'memory: 1MiB\n' 'no directory; give --dir PATH'
run 2 "$CAIRN" serve missing.yaml
says 'missing.yaml: No such file'
run 2 "$CAIRN" serve --dir d --memory much
says '\-\-memory much; expected a size'
long=$(printf 'd%.0s' {1..60})
mkdir -p "$T/$long/$long"
serve --dir l --memory 16MiB --flash "$T/l.cairn:64MiB" --listen "unix:$T/$long/$long/a-socket-whose-path-is-long"
run 0 "$CAIRN" put l a a
run 0 "$CAIRN" get "unix:$T/$long/$long/a-socket-whose-path-is-long" a got
same a got
end
finish
