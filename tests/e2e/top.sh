#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# cairn top on a terminal and without one, cairn stat --watch, cairn events.
. "$(dirname "$0")/lib_serve.sh"
random a 3000000
serve --dir s --memory 32MiB --flash "$T/flash.cairn:128MiB" --admin off
run 0 "$CAIRN" put s a a

run 0 "$CAIRN" top s --once --every 1
prints '^TIER +USED OF CAPACITY'
prints '^memory +[0-9.]+ MiB of 32.0 MiB'
prints '^flash .* of 128.0 MiB'
prints '^default '
prints '^[0-9a-f]{12} +file '
prints '^hits [0-9.]+ % of [0-9]+ parts'
prints '^libcairn .*this server'
run 0 "$CAIRN" top s --json --every 1
json 'j["spaces"][0]["more"] == "file" and j["tenants"][0]["name"] == "default" and j["clients"][0]["pid"] > 0'
json 'j["stat"]["alarms"] == [] and j["stat"]["misses_why"]["evicted"] == 0'
run 2 "$CAIRN" top s --every 0
says 'is no time'

# For real: keys, another size, the end.
cat >drive.py <<'PY'
import fcntl, os, pty, select, struct, sys, termios, time
pid, fd = pty.fork()
if pid == 0:
    os.environ["TERM"] = "xterm"
    os.execv(sys.argv[1], [sys.argv[1], "top", sys.argv[2], "--every", "1"])
def size(rows, columns):
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
seen = b""
def until(text, seconds=20):
    global seen
    end = time.time() + seconds
    while text not in seen:
        if not select.select([fd], [], [], max(0, end - time.time()))[0]:
            sys.exit("not shown: %r in %r" % (text, seen[-2000:]))
        seen += os.read(fd, 65536)
    seen = seen[seen.index(text) + len(text):]
size(40, 130)
until(b"sorted by bytes")
until(b"CLIENT")
os.write(fd, b"s")
size(41, 131)  # all of it is drawn anew
until(b"sorted by read")
os.write(fd, b"h")
size(40, 130)
until(b"sort by bytes held")
os.write(fd, b"h")
size(12, 60)   # what does not fit is left out
until(b"TIER")
size(1, 10)
time.sleep(1.2)
size(40, 130)
until(b"SPACE")
os.write(fd, b"q")
until(b"\x1b[?1049l")  # the screen is given back
for _ in range(100):
    done, status = os.waitpid(pid, os.WNOHANG)
    if done:
        sys.exit(os.waitstatus_to_exitcode(status))
    time.sleep(0.1)
sys.exit("it did not end")
PY
run 0 python3 drive.py "$CAIRN" s

# Rates, a line each; a signal ends them.
running="stat --watch"
"$CAIRN" stat s --watch=1 >watched 2>/dev/null &
watcher=$!
"$CAIRN" stat s --watch=1 --json >watched.json 2>/dev/null &
other=$!
for _ in $(seq 10); do
	run 0 "$CAIRN" get s a got
	[ "$(grep -c 'MB/s' watched)" -ge 2 ] && [ "$(grep -Ec '"hits_s":[1-9]' watched.json)" -ge 1 ] && break
	sleep 0.5
done
kill -TERM $watcher $other
check "a heading and lines of rates" grep -Eq '^ +READ +WRITTEN' watched
check "what was read was seen" grep -Eq '^ *[0-9.]+ [MG]B/s' watched
check "as JSON lines too" python3 -c 'import json; assert any(json.loads(x)["read_bytes_s"] > 0 for x in open("watched.json"))'
run 2 "$CAIRN" stat s --watch=never
says 'is no time'

# Events, as they come.
run 0 "$CAIRN" events s --snapshot --json
check "a line for each part and one for the number" python3 - "$T/out" <<'PY'
import json, sys
lines = [json.loads(x) for x in open(sys.argv[1])]
last = lines[-1]
assert last["kind"] == "snapshot" and last["parts"] == len(lines) - 1 and last["sequence"] > 0
PY
"$CAIRN" events s --follow --json >followed 2>/dev/null &
follower=$!
for _ in $(seq 100); do [ -s followed ] && break; sleep 0.05; done
run 0 "$CAIRN" put s b a
head -c 1000 a >small
run 0 "$CAIRN" put s c small
for _ in $(seq 100); do [ "$(wc -l <followed)" -ge 12 ] && break; sleep 0.05; done
kill -TERM $follower
wait $follower 2>/dev/null
check "no gap, one life, in order" python3 - <<'PY'
import json
lines = [json.loads(x) for x in open("followed")]
assert len(lines) >= 12 and len({x["life"] for x in lines}) == 1
assert [x["sequence"] for x in lines] == list(range(1, len(lines) + 1))
PY
run 0 "$CAIRN" events s --after 3
prints '^4 stored '
end
finish
