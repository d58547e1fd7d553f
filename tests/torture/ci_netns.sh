#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A cairnd and clients in network namespaces of their own, with a limited rate between them: IPv4 and IPv6; a slow client
# holds back nobody; a link that goes down is noticed by both ends in bounded time, also where nothing is being sent.
# Skipped where namespaces or tc can not be had.
set -u +m
export PATH=$PATH:/sbin:/usr/sbin
run=$CAIRN_BUILD/torture_netns
fail() {
	echo "ci_netns: $*"
	exit 1
}
skip() {
	echo "skipped: $*"
	exit 77
}

if [ "${1:-}" != inside ]; then
	for program in unshare nsenter ip tc; do
		command -v $program >/dev/null || skip "there is no $program here (util-linux, iproute2)"
	done
	user=()
	[ "$(id -u)" = 0 ] || user=(-r)
	unshare "${user[@]}" -n true 2>/dev/null || skip "network namespaces are not allowed here"
	exec unshare "${user[@]}" -n --kill-child --fork bash "$0" inside
fi

directory=$(mktemp -d)
pids=()
clean() {
	kill -9 "${pids[@]}" 2>/dev/null
	wait "${pids[@]}" 2>/dev/null
	rm -rf "$directory"
}
trap clean EXIT

# ---- two clients' namespaces: 1 is slow, 2 is not -------------------------------------------------------------------

declare -A space
link() { # NUMBER
	unshare -n sleep 1000 &
	space[$1]=$!
	pids+=($!)
	for ((i = 0; i < 100; i++)); do
		[ "$(readlink /proc/${space[$1]}/ns/net)" != "$(readlink /proc/self/ns/net)" ] && break
		sleep 0.05
	done
	ip link add "near$1" type veth peer name "far$1" 2>/dev/null || skip "this kernel has no veth"
	ip link set "far$1" netns "${space[$1]}"
	ip addr add "10.77.$1.1/24" dev "near$1"
	ip -6 addr add "fd77:$1::1/64" dev "near$1" nodad
	ip link set "near$1" up
	at "$1" ip addr add "10.77.$1.2/24" dev "far$1"
	at "$1" ip -6 addr add "fd77:$1::2/64" dev "far$1" nodad
	at "$1" ip link set "far$1" up
}
at() { # NUMBER COMMAND...
	local number=$1
	shift
	nsenter -t "${space[$number]}" -n "$@"
}
ip link set lo up
link 1
link 2
tc qdisc replace dev near1 root tbf rate 100mbit burst 64kb latency 50ms 2>/dev/null || skip "this kernel has no tbf"

"$CAIRN_BUILD/cairnd" --dir "$directory/store" --memory 256MiB --flash "$directory/flash.cairn:512MiB" \
	--listen "unix:$directory/socket" --listen "tcp+plain://0.0.0.0:7410" --listen "tcp+plain://[::]:7411" \
	2>"$directory/log" &
pids+=($!)
for ((i = 0; i < 200; i++)); do
	[ -S "$directory/socket" ] && break
	sleep 0.05
done
slow=tcp+plain://10.77.1.1:7410 fast=tcp+plain://10.77.2.1:7410 slow6=tcp+plain://[fd77:1::1]:7411

# ---- both families --------------------------------------------------------------------------------------------------

took=$(at 2 "$run" put "$fast" 40) || fail "put: $took"
took=$(at 1 "$run" get "$slow" 8) || fail "get over IPv4: $took"
echo "8 MiB at 100 Mbit/s over IPv4: $took"
took=$(at 1 "$run" get "$slow6" 8) || fail "get over IPv6: $took"
echo "8 MiB at 100 Mbit/s over IPv6: $took"
# Where a kernel has netem: late, and in part lost; else a queue that is too short loses some.
if tc qdisc replace dev near1 root netem rate 50mbit delay 20ms 5ms loss 1% 2>/dev/null; then
	what="with 1 % lost and 20 ms"
else
	what="over a queue that is too short"
	tc qdisc replace dev near1 root tbf rate 50mbit burst 16kb limit 20kb
fi
took=$(at 1 "$run" get "$slow" 4) || fail "get $what: $took"
echo "4 MiB at 50 Mbit/s $what: $took"

# ---- a slow one holds back nobody -----------------------------------------------------------------------------------

tc qdisc replace dev near1 root tbf rate 1mbit burst 16kb latency 400ms
at 1 "$run" get "$slow" 40 >"$directory/slow" 2>&1 &
slow_pid=$!
pids+=($slow_pid)
sleep 1
took=$(at 2 "$run" latency "$fast" 4) || fail "latency beside a slow client: $took"
echo "beside a client at 1 Mbit/s another waits $took"
awk -v took="$took" 'BEGIN { split(took, t); exit t[1] > 1000 }' || fail "a slow client holds back another one: $took"
took=$(at 2 "$run" get "$fast" 40) || fail "get beside a slow client: $took"
echo "and gets 40 MiB in $took"
kill -0 $slow_pid 2>/dev/null || fail "the slow client has ended too early: $(cat "$directory/slow")"

# ---- a link that goes down ------------------------------------------------------------------------------------------

at 2 "$run" hold "$fast" >"$directory/hold" 2>&1 & # idle: nothing is sent either way
pids+=($!)
for ((i = 0; i < 100; i++)); do
	grep -q holds "$directory/hold" && break
	sleep 0.05
done
grep -q holds "$directory/hold" || fail "the match is not held: $(cat "$directory/hold")"
ip link set near1 down
ip link set near2 down
begun=$(date +%s%N)
took=$("$run" free "unix:$directory/socket" 25) || fail "cairnd does not notice that clients are gone: $took"
echo "cairnd gave back what clients held that can not be reached, after $took"
awk -v took="$took" 'BEGIN { split(took, t); exit t[1] > 15 }' || fail "cairnd noticed too late: $took"
wait $slow_pid
status=$?
took=$((($(date +%s%N) - begun) / 1000000))
((status == 3)) || fail "the client of a lost cairnd ended with $status: $(cat "$directory/slow")"
((took < 25000)) || fail "a client noticed after $took ms only that its cairnd is gone"
echo "a client in the middle of a get noticed within $took ms"
ip link set near1 up
ip link set near2 up
ip -6 addr add "fd77:1::1/64" dev near1 nodad 2>/dev/null
tc qdisc replace dev near1 root tbf rate 100mbit burst 64kb latency 50ms
took=$(at 1 "$run" get "$slow" 8) || fail "get after the link came back: $took"
echo "and when the link is back: 8 MiB in $took"
grep -E ' (error|warning) ' "$directory/log"
exit 0
