# SPDX-License-Identifier: Apache-2.0
# For scripts that start a cairnd of their own (after lib.sh, in its folder).
. "$(dirname "$0")/lib.sh"
cd "$T" || exit 1
server=
stop()
{
	[ -z "$server" ] || kill -9 "$server" 2>/dev/null
	rm -rf "$T"
}
trap stop EXIT

# serve ARGUMENT...: starts one and waits until it is ready.
serve()
{
	rm -f server.log
	"$CAIRN" serve "$@" 2>server.log &
	server=$!
	for _ in $(seq 300); do
		grep -Eqs 'msg=ready |"msg":"ready"' server.log && return
		kill -0 $server 2>/dev/null || break
		sleep 0.1
	done
	running="serve $*"
	fail "it did not become ready: $(cat server.log)"
}
end()
{
	kill -TERM $server
	wait $server
	local status=$?
	running="the end of cairn serve"
	check "status 0, not $status" test $status -eq 0
	server=
}

