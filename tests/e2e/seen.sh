#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What cairnd shows of itself: metrics that promtool accepts, health, readiness, and what happens where the port is taken.
. "$(dirname "$0")/lib_serve.sh"
random a 3000000
port=$((20000 + RANDOM % 20000))
# fetch STATUS PATH: what the admin endpoint answers is in $T/out.
fetch()
{
	running="GET $2"
	python3 - "$port" "$2" >"$T/out" 2>"$T/err" <<'PY'
import sys, urllib.request, urllib.error
try:
    answer = urllib.request.urlopen("http://127.0.0.1:%s%s" % tuple(sys.argv[1:3]), timeout=20)
except urllib.error.HTTPError as error:
    answer = error
sys.stdout.write(answer.read().decode())
sys.exit(answer.status // 100)
PY
	local status=$?
	[ $status -eq "$1" ] || fail "HTTP status $status.., not $1.."
}
# metric NAME VALUE: a line of the metrics in $T/out.
metric()
{
	grep -Fqx "$1 $2" "$T/out" || fail "no line: $1 $2"
}

serve --dir s --memory 32MiB --flash "$T/flash.cairn:128MiB" --admin "127.0.0.1:$port"
run 0 "$CAIRN" put s a a
run 0 "$CAIRN" get s a got
run 1 "$CAIRN" get s nobody got
fetch 2 /metrics
written=$(sed -n 's/^cairn_tier_written_bytes_total{tier="memory"} //p' "$T/out") # the file and its manifest
check "what was put was counted" test "$written" -gt 3000000 -a "$written" -lt 3001000
metric 'cairn_tier_capacity_bytes{tier="flash"}' $((128 << 20))
metric 'cairn_request_seconds_count{type="hello"}' 3
metric 'cairn_sessions' 1
metric 'cairn_clients' 0
prints 'cairn_space_bytes\{space="[0-9a-f]{12}",model="file",tier="flash"\} 3000000'
cp "$T/out" metrics
if promtool=$(bash "$CAIRN_SOURCE/tools/promtool.sh" 2>/dev/null); then
	running="promtool check metrics"
	"$promtool" check metrics <metrics >"$T/out" 2>&1
	check "no fault and no advice" test $? -eq 0 -a ! -s "$T/out"
else
	echo "promtool is not to be had: the metrics were not checked by it"
fi
fetch 2 /healthz
json 'j["status"] == "ok" and j["tiers"]["memory"]["state"] == "ok" and j["tiers"]["flash"]["state"] == "ok"'
json 'j["tiers"]["flash"]["devices"][0]["state"] == "healthy" and j["alarms"] == []'
fetch 2 /readyz
fetch 4 /nothing
fetch 2 /metrics
metric 'cairn_tier_written_bytes_total{tier="memory"}' "$written" # health's own probe is not counted
check "one log line tells the port" grep -q "msg=\"metrics and health\" .*port=$port" server.log

# The port is taken: a warning, and it serves all the same.
first=$server
serve --dir other --memory 16MiB --flash "$T/other.cairn:64MiB" --admin "127.0.0.1:$port"
check "it says so" grep -q 'level=warning msg="no metrics and no health: their port can not be had"' server.log
run 0 "$CAIRN" put other a a
end
server=$first

# Off, and on again, while it runs; private ones have none.
printf '%s\n' "dir: $T/c" "memory: 16MiB" "flash: [\"$T/c.cairn:64MiB\"]" 'admin: off' >c.yaml
end
serve c.yaml
fetch 1 /readyz # nobody listens: Python's own status
printf '%s\n' "dir: $T/c" "memory: 16MiB" "flash: [\"$T/c.cairn:64MiB\"]" "admin: 127.0.0.1:$port" >c.yaml
kill -HUP $server
for _ in $(seq 100); do grep -q reloaded server.log && break; sleep 0.05; done
fetch 2 /readyz
end
run 2 "$CAIRN" serve --dir d --admin nonsense --check
says '\-\-admin nonsense; expected HOST:PORT, or off'
finish
