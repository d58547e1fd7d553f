#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The verbs that look at a store and decide on it: ls, stat, session, explain, drop.
. "$(dirname "$0")/lib.sh"
cd "$T" || exit 1
M=1048576

random a $((5 * M + 3))
cp a b
random shared.tail 100
cat shared.tail >>b # b shares its first five blocks with a
random c $M
run 0 "$CAIRN" put store a a --budget 128M
run 0 "$CAIRN" put store b b --owner ada
run 0 "$CAIRN" put store c c --tenant acme

# ls
run 0 "$CAIRN" ls store
prints '^default +- +5.0 MiB .* a$'
prints '^default +ada +5.0 MiB .* b$'
prints '^acme +- +1.0 MiB .* c$'
prints '^3 sessions, 11.0 MiB$'
quiet
run 0 "$CAIRN" ls store --json
json 'sorted(s["name"] for s in j["sessions"]) == ["a", "b", "c"]'
json 'all(s["bytes"] > 0 and s["saved_at_s"] > 1e9 and s["expires_at_s"] is None and s["pinned"] is False for s in j["sessions"])'
run 0 "$CAIRN" ls store --owner ada --json
json '[s["name"] for s in j["sessions"]] == ["b"]'
run 0 "$CAIRN" ls store --tenant acme --json
json '[s["name"] for s in j["sessions"]] == ["c"]'
run 0 "$CAIRN" ls store --sessions --tenant nobody
prints '^0 sessions'
run 0 "$CAIRN" ls store --parts
prints '^SPACE +KEY'
run 0 "$CAIRN" ls store --parts --json
json 'sum(p["bytes"] for p in j["parts"]) > 6 << 20 and all(p["in_flash"] for p in j["parts"])'
json 'sum(p["bytes"] == 1 << 20 for p in j["parts"]) == 6'

# Spaces: what is printed of one is its description.
run 0 "$CAIRN" ls store --spaces --json
json 'len([s for s in j["spaces"] if s["text"]]) == 2'
json 'any(s["parts"] == 7 and "file/1" in s["text"] for s in j["spaces"])'
space=$(python3 -c 'import json, sys; print([s["id"] for s in json.load(open("out"))["spaces"] if s["parts"] == 7][0])')
run 0 "$CAIRN" ls store --spaces "${space:0:8}"
cp out file.space
run 0 "$CAIRN" key file.space
prints "^space $space\$"
run 0 "$CAIRN" key file.space --file a --json
json 'len(j["keys"]) == 6'
run 0 "$CAIRN" ls store --parts "$space" --json
json 'len(j["parts"]) == 7'
run 1 "$CAIRN" ls store --spaces ffffffffffff
says 'there is no space ffffffffffff'
run 2 "$CAIRN" ls store --spaces xyz
says '"xyz" is not a space id'

# stat
run 0 "$CAIRN" stat store
prints '^flash +[0-9.]+ [KM]iB of +[0-9.]+ MiB'
prints '^device 0 store/flash.cairn, healthy$'
prints '^sessions 3$'
prints '^reopen +took .* and read '
run 0 "$CAIRN" stat store --json
json 'j["sessions"] == 3 and j["devices"][0]["budget_bytes"] == 128 << 20 and j["devices"][0]["state"] == "healthy"'
json '[t for t in j["tiers"] if t["tier"] == "flash"][0]["parts"] >= 8'
json '[t for t in j["tiers"] if t["tier"] == "flash"][0]["used_bytes"] > 6 << 20'
json 'j["devices"][0]["segment_bytes"] >= 1 << 20 and j["devices"][0]["used_bytes"] > 6 << 20'

# session
run 0 "$CAIRN" session store list
prints '^3 sessions'
run 0 "$CAIRN" session store show b --owner ada
prints '^kept +it may be evicted$'
prints '^state +a file of 5.0 MiB, by cairn put$'
run 0 "$CAIRN" session store show a --json
json 'j["file_bytes"] == 5 * 1048576 + 3 and len(j["chains"][0]["keys"]) == 6 and j["epoch"] == 1 and not j["pinned"]'
key=$(python3 -c 'import json; print(json.load(open("out"))["chains"][0]["keys"][0])')
last=$(python3 -c 'import json; print(json.load(open("out"))["chains"][0]["keys"][5])')
run 0 "$CAIRN" session store pin a
run 0 "$CAIRN" session store show a --json
json 'j["pinned"] is True and j["expires_at_s"] is None'
run 0 "$CAIRN" session store pin a --ttl 2d
prints 'kept for 2 days'
run 0 "$CAIRN" session store show a --json
json 'j["pinned"] is False and 86400 < j["expires_at_s"] - j["saved_at_s"] < 3 * 86400'
run 0 "$CAIRN" session store unpin a
run 0 "$CAIRN" session store show a --json
json 'j["pinned"] is False and j["expires_at_s"] is None'
run 1 "$CAIRN" session store pin nothing
says 'no session "nothing"'
run 2 "$CAIRN" session store close a --ttl 1h
says '--ttl with close'
run 0 "$CAIRN" session store close a
run 0 "$CAIRN" get store a out.a
same a out.a
run 0 "$CAIRN" put store kept c --ttl 1h
run 0 "$CAIRN" put store pinned c --pin
run 0 "$CAIRN" ls store --json
json 'sum(s["pinned"] for s in j["sessions"]) == 1 and sum(s["expires_at_s"] is not None for s in j["sessions"]) == 1'
random big $((100 * M))
run 2 "$CAIRN" put store big big --pin
says 'pins and times to live'
rm -f big
run 0 "$CAIRN" put store short c --ttl 1
sleep 1.2
run 1 "$CAIRN" get store short out.short
says 'no session "short"'

# explain
run 0 "$CAIRN" explain store a
prints '^"a": 6 of 6 blocks there, 6 in flash$'
run 0 "$CAIRN" explain store "$key"
prints "^space ${space:0:16}, part 0: there, in flash, 1.0 MiB"
run 0 "$CAIRN" explain store "$key" --space "${space:0:6}" --json
json 'j["found"][0]["reason"] == "present" and j["found"][0]["tier"] == "flash" and j["found"][0]["bytes"] == 1048576'
run 1 "$CAIRN" explain store "0000${key:4}"
prints '^never seen, or forgotten'
run 1 "$CAIRN" explain store nothing
says 'no session "nothing"'
run 0 "$CAIRN" explain store a --json
json 'j["whole"] is True and j["there"] == 6 and j["gone"] == []'

# drop: without a terminal and --yes nothing happens.
run 2 "$CAIRN" drop store --session a </dev/null
says 'add --yes'
run 1 "$CAIRN" drop store --session nothing --yes
says 'no session "nothing"'
run 0 "$CAIRN" drop store --key "${space:0:8}" "$last" --yes
prints '^1 part dropped$'
run 1 "$CAIRN" explain store "$last"
prints 'dropped on request'
run 1 "$CAIRN" explain store a
prints '^block 5 '
prints '5 of 6 blocks there'
run 1 "$CAIRN" get store a out.gone
says '"a": block 5 of 6 .* is gone'
check "no file" test ! -e out.gone
run 2 "$CAIRN" drop store --key "${space:0:8}" abc --yes
says '"abc" is not a key'

# A session's drop leaves what others share.
run 0 "$CAIRN" put store a a
run 0 "$CAIRN" drop store --session a --yes
prints '^1 part dropped$'
run 1 "$CAIRN" get store a out.gone
run 0 "$CAIRN" get store b out.b --owner ada
same b out.b
run 1 "$CAIRN" explain store "$last"
run 0 "$CAIRN" explain store "$key"

# forget leaves blocks.
run 0 "$CAIRN" session store forget b --owner ada
run 1 "$CAIRN" get store b out.gone --owner ada
run 0 "$CAIRN" explain store "$key"

# A space; a tenant. Each command opens the store anew, so what is gone stays gone.
run 0 "$CAIRN" drop store --space "${space:0:8}" --yes --json
json 'j["dropped_parts"] >= 5'
run 1 "$CAIRN" explain store "$key"
run 0 "$CAIRN" ls store --tenant default --json
json 'j["sessions"] == []'
run 0 "$CAIRN" get store c out.c --tenant acme
same c out.c
run 0 "$CAIRN" drop store --tenant acme --yes
run 1 "$CAIRN" get store c out.gone --tenant acme
run 0 "$CAIRN" ls store --parts --json
json 'j["parts"] == []'
run 0 "$CAIRN" put store c c --tenant acme
run 0 "$CAIRN" get store c out.c --tenant acme
same c out.c

# Flash in more than one place, remembered.
mkdir one
run 0 "$CAIRN" put wide a a --flash one:64M --flash two.flash:64M
run 0 "$CAIRN" get wide a out.wide
same a out.wide
run 0 "$CAIRN" stat wide --json
json 'len(j["devices"]) == 2 and all(d["budget_bytes"] == 64 << 20 for d in j["devices"])'
check "flash is where it was asked for" test -e one/flash.cairn -a -e two.flash

# One process owns a store.
mkfifo fifo
"$CAIRN" put store waiting - <fifo >/dev/null 2>&1 &
pid=$!
exec 7>fifo
for _ in $(seq 500); do # not by looking: a look holds the store too
	grep -qx $pid store/lock && break
	sleep 0.01
done
for verb in "ls store" "stat store" "get store c f" "put store x c" "drop store --session c --yes"; do
	run 2 "$CAIRN" $verb
	says "store is open in process $pid: end it first"
done
exec 7>&-
wait $pid
check "the waiting put ends well" test $? -eq 0
run 0 "$CAIRN" get store waiting empty
check "it is empty" test -f empty -a ! -s empty

# Readers do not wait for each other, and change nothing.
before=$(find store -type f -exec cat {} + | md5sum)
for _ in 1 2 3 4; do
	"$CAIRN" get store c - --tenant acme --read-only >/dev/null 2>>readers.err &
done
wait
check "readers do not disturb each other" test ! -s readers.err
run 0 "$CAIRN" ls store
run 0 "$CAIRN" stat store --read-only
check "readers change nothing" test "$(find store -type f -exec cat {} + | md5sum)" = "$before"

# Nobody may write there: looking still works. (The superuser may always.)
if [ "$(id -u)" -ne 0 ]; then
	chmod -R a-w store
	run 0 "$CAIRN" ls store
	run 2 "$CAIRN" put store x c
	chmod -R u+w store
fi
finish
