#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Three cairnds that are each other's peers: what was put with one is had from the others, from its memory and from its
# flash; one that is killed, or stopped in the middle of everything, costs nobody more than a moment.
. "$(dirname "$0")/lib.sh"
cd "$T" || exit 1

random a 6000000
random b 3000000
random c 2000000
random d 1000000
echo 'peer_wait_ms: 200' >wait.yaml # the machine may be busy
declare -A server
trap 'for pid in "${server[@]}"; do kill -CONT $pid 2>/dev/null; kill -9 $pid 2>/dev/null; done; rm -rf "$T"' EXIT

# serve NAME ARGUMENT...: starts one over the directory NAME and waits until it is ready.
serve()
{
	local name=$1
	shift
	rm -f $name.log
	"$CAIRN" serve wait.yaml --dir $name --memory 32MiB --flash "$T/$name.cairn:128MiB" --admin off "$@" 2>$name.log &
	server[$name]=$!
	for _ in $(seq 200); do
		grep -qs 'msg=ready ' $name.log && return
		kill -0 ${server[$name]} 2>/dev/null || break
		sleep 0.05
	done
	running="serve $name $*"
	fail "it did not become ready: $(cat $name.log)"
}
# within SECONDS STATUS COMMAND...: like run, and it takes no longer.
within()
{
	local most=$1 begun=$(date +%s%N)
	shift
	run "$@"
	check "it takes at most $most s" test $((($(date +%s%N) - begun) / 1000000)) -le $((most * 1000))
}

port=$((20000 + RANDOM % 20000))
at_a=tcp+plain://127.0.0.1:$port
tls_a=tcp://127.0.0.1:$((port + 1))
mkdir A
"$CAIRN" token new A --admin >token
chmod 600 token
serve A --listen $at_a --listen $tls_a
serve B --admin 127.0.0.1:$((port + 2)) --peer $at_a --peer unix:$T/C/cairn.sock # that is not there yet
serve C --peer "$tls_a $T/token" --peer unix:$T/B/cairn.sock

# From A's memory.
run 0 "$CAIRN" put A talk a
run 0 "$CAIRN" get B talk got
same a got
run 0 "$CAIRN" stat B --json
json '[p["hits"] > 0 and p["hit_bytes"] >= 6000000 for p in j["peers"] if p["place"].startswith("tcp")] == [True]'
json 'j["peers"][1]["hits"] == 0'
run 1 "$CAIRN" get B nothing got
says 'no session'
run 0 python3 -c 'import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode())' \
	http://127.0.0.1:$((port + 2))/metrics
prints '^cairn_peer_state.peer="tcp.plain.*". 0$'
prints '^cairn_peer_hits_total.peer="tcp.plain.*". [1-9]'
prints '^cairn_tier_hits_total.tier="peer". [1-9]'

# From A's flash, after A was restarted: C has never heard of it.
kill -TERM ${server[A]}
wait ${server[A]}
serve A --listen $at_a --listen $tls_a
for _ in $(seq 100); do # stepped over for a moment after it was gone
	"$CAIRN" get C talk got -q 2>/dev/null && break
	sleep 0.1
done
running="get from C"
same a got
run 0 "$CAIRN" stat A --json
json '[t["hits"] > 0 for t in j["tiers"] if t["tier"] == "flash"] == [True]'

# A is killed: what nobody else has is a miss, at once. (The session is A's; its blocks are B's own now.)
run 0 "$CAIRN" put A only b
kill -9 ${server[A]}
wait ${server[A]} 2>/dev/null
within 3 1 "$CAIRN" get B only got
run 0 "$CAIRN" put B talk a
run 0 "$CAIRN" get B talk got
same a got

# C is stopped: it takes connections and says nothing.
run 0 "$CAIRN" put C there c
kill -STOP ${server[C]}
within 3 1 "$CAIRN" get B there got
within 3 1 "$CAIRN" get B there got
run 0 "$CAIRN" put B mine d
within 3 0 "$CAIRN" get B mine got
same d got
kill -CONT ${server[C]}
for _ in $(seq 150); do
	"$CAIRN" get B there got -q 2>/dev/null && break
	sleep 0.1
done
running="get from B after C went on"
same c got

# They end in time, with a peer that hangs.
kill -STOP ${server[C]}
"$CAIRN" get B nothing got 2>/dev/null
begun=$(date +%s)
kill -TERM ${server[B]}
wait ${server[B]}
running="the end of B"
check "status 0, not $?" test $? -eq 0
check "in time" test $(($(date +%s) - begun)) -le 5
kill -CONT ${server[C]}
kill -TERM ${server[C]}
wait ${server[C]}

# Configuration.
cat >peers.yaml <<EOF
dir: $T/conf
peers:
  - tcp+plain://10.0.0.5
  - unix:$T/C/cairn.sock
peer_wait_ms: 50
EOF
run 0 "$CAIRN" serve peers.yaml --peer tcp+plain://10.0.0.6:7411 --print-config
cp "$T/out" again.yaml
prints '  - "tcp\+plain://10.0.0.6:7411"'
run 0 "$CAIRN" serve again.yaml --print-config
same again.yaml "$T/out"
printf 'dir: d\npeers: http://x\n' >bad.yaml
run 2 "$CAIRN" serve bad.yaml --check
says 'bad.yaml:2: peers is "http://x"; expected places of other cairnds'
printf 'dir: d\npeer_wait_ms: 0\n' >bad.yaml
run 2 "$CAIRN" serve bad.yaml --check
says 'bad.yaml:2: peer_wait_ms is "0"; expected milliseconds'
finish
