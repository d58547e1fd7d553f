#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A full disk, by ourselves and by others: the store gives way, reads go on, and what fails says why in one line.
# Needs root: file systems of its own, in namespaces that end with the script.
if [ -z "${CAIRN_ENV_INSIDE:-}" ]; then
	unshare --mount --pid --fork --mount-proc true 2>/dev/null || { echo "skipped: needs root, for mounts"; exit 77; }
	CAIRN_ENV_INSIDE=1 exec unshare --mount --pid --fork --kill-child --mount-proc bash "$0" "$@"
fi
. "$(dirname "$0")/lib.sh"
trap 'cd /; umount -l "$T"/disk 2>/dev/null; rm -rf "$T"' EXIT
cd "$T" || exit 1
M=1048576
mkdir disk

# roomy WHAT SLACK: the file system has its floor free, 5 % of it, but for SLACK KiB.
roomy()
{
	local free all unit
	read -r free all unit < <(stat -f -c '%a %b %S' disk)
	running="$1"
	[ $((free * unit)) -ge $((all * unit / 20 - $2 * 1024)) ] ||
		fail "only $((free * unit / 1024)) KiB of $((all * unit / 1024)) KiB are free"
}

# readable FILES...: each is got whole, or said to be gone; at least the last one is whole.
readable()
{
	local status file
	for file; do
		running="get $file"
		"$CAIRN" get disk/s "$file" got >out 2>err
		status=$?
		case $status in
			0) same "$file" got ;;
			1) [ "$(wc -l <err)" -eq 1 ] || fail "not one line on what is gone" ;;
			*) fail "exit status $status"; cat err ;;
		esac
	done
	[ $status -eq 0 ] || fail "the last one is not whole"
}

fill() { dd if=/dev/zero of="disk/$1" bs=64K 2>/dev/null; dd if=/dev/zero of="disk/$1-" bs=4K 2>/dev/null; }

for i in 1 2 3 4 5 6 7 8; do
	random f$i $((10 * M))
done
random kept 3000000
random large $((48 * M))

mount -t tmpfs -o size=128M none disk

# With the limits that nobody set: always success, by eviction. What is pinned stays.
run 0 "$CAIRN" put disk/s kept kept --pin
for i in 1 2 3 4 5 6 7 8; do
	run 0 "$CAIRN" put disk/s f$i f$i
	quiet
	roomy "put f$i" 256
done
run 0 "$CAIRN" get disk/s kept out.kept
same kept out.kept
readable f1 f2 f3 f4 f5 f6 f7 f8
run 0 "$CAIRN" put disk/s new f1 --json
run 0 "$CAIRN" get disk/s new got
same f1 got

# Bytes that were never seen are not "there already".
random fresh $((10 * M))
run 0 "$CAIRN" put disk/s fresh fresh --json
json 'j["existed_blocks"] == 0'

# A file that can not fit, though it is smaller than the limit: it is put, or refused with the others left alone.
run 0 "$CAIRN" put disk/s f8 f8
"$CAIRN" put disk/s large large >"$T/out" 2>"$T/err"
status=$?
running="put large"
if [ $status -eq 0 ]; then
	run 0 "$CAIRN" get disk/s large got
	same large got
else
	check "status 2" test $status -eq 2
	says 'room|fit|full|raise|budget'
	grep -q 'failed' "$T/err" && fail "no device has failed"
fi

# Others take all that is left: reads go on, and a put gives back what others need.
run 0 "$CAIRN" put disk/s f7 f7
fill others
check "the disk is full" test "$(stat -f -c %a disk)" -eq 0
before=$(du -k disk/s | cut -f1)
run 0 "$CAIRN" get disk/s f7 got
same f7 got
run 0 "$CAIRN" ls disk/s
run 0 "$CAIRN" stat disk/s
run 0 "$CAIRN" put disk/s f8 f8
readable f8
# A store gives back while it is open, and a short run does not wait for that: some runs.
for i in 1 2 3 4 5 6 7 8 9 10; do
	[ "$(du -k disk/s | cut -f1)" -lt "$before" ] && [ "$(stat -f -c %a disk)" -gt 500 ] && break
	random "more$i" $M
	run 0 "$CAIRN" put disk/s "more$i" "more$i"
done
# A segment less: others take what they take.
roomy "puts on a full disk" 4096
check "blocks were given back" test "$(du -k disk/s | cut -f1)" -lt "$before"
# The same after a reopen, and once more when others took that too.
run 0 "$CAIRN" put disk/s f1 f1
readable f1
fill more
run 0 "$CAIRN" put disk/s f2 f2
readable f2
run 0 "$CAIRN" get disk/s kept out.kept
same kept out.kept
fill most
run 0 "$CAIRN" put disk/s tiny "$CAIRN_SOURCE/README.md"
run 0 "$CAIRN" get disk/s tiny got
same "$CAIRN_SOURCE/README.md" got
run 0 "$CAIRN" stat disk/s --json
used=$(du -k disk/s | cut -f1)
json "abs(j['devices'][0]['used_bytes'] - $used * 1024) < 4 << 20"

# Nor does get leave half a file where there is no room for it.
fill rest
run 2 "$CAIRN" get disk/s f2 disk/got
says 'disk/got: .*[Nn]o (room|space)'
check "nothing is left of it" test ! -e disk/got

# Forgotten, dropped: these need no room either.
run 0 "$CAIRN" session disk/s forget f2
run 0 "$CAIRN" drop disk/s --session f1 --yes
run 1 "$CAIRN" get disk/s f1 got
rm disk/others* disk/more* disk/most* disk/rest*
run 0 "$CAIRN" put disk/s f3 f3
readable f3
run 1 "$CAIRN" get disk/s f2 got
run 0 "$CAIRN" get disk/s kept out.kept
same kept out.kept

# No room to make a store: it says so, and the next one works.
rm -rf disk/s
fill others
run 2 "$CAIRN" put disk/s f1 f1
says 'No space left|no room'
check "no store is there" test ! -e disk/s/cairn.id
rm disk/others-
truncate -s 104M disk/others
run 2 "$CAIRN" put disk/s large large # over the floor, if anything could be stored at all
says 'room|fit|full|raise|budget'
rm disk/others
run 0 "$CAIRN" put disk/s f1 f1
readable f1
finish
