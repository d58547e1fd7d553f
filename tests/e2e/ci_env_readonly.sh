#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A store on a file system that is mounted read-only: all that looks works, all that writes says why it can not.
# Needs root: file systems of its own, in namespaces that end with the script.
if [ -z "${CAIRN_ENV_INSIDE:-}" ]; then
	unshare --mount --pid --fork --mount-proc true 2>/dev/null || { echo "skipped: needs root, for mounts"; exit 77; }
	CAIRN_ENV_INSIDE=1 exec unshare --mount --pid --fork --kill-child --mount-proc bash "$0" "$@"
fi
. "$(dirname "$0")/lib.sh"
trap 'cd /; umount -l "$T"/ro "$T"/disk 2>/dev/null; rm -rf "$T"' EXIT
cd "$T" || exit 1

random a 3000000
random b 500

# looks DIRECTORY: every verb that looks, and every one that writes.
looks()
{
	for name in a b; do
		run 0 "$CAIRN" get "$1/s" $name got
		same $name got
		run 0 "$CAIRN" session "$1/s" show $name
		quiet
		run 0 "$CAIRN" explain "$1/s" $name
	done
	run 0 "$CAIRN" ls "$1/s"
	prints '^2 sessions'
	run 0 "$CAIRN" ls "$1/s" --spaces
	run 0 "$CAIRN" ls "$1/s" --parts
	run 0 "$CAIRN" session "$1/s" list
	prints '^2 sessions'
	run 0 "$CAIRN" stat "$1/s"
	prints 'healthy'
	quiet
	run 1 "$CAIRN" get "$1/s" c got
	says 'no session "c"'
	run 2 "$CAIRN" put "$1/s" c b
	says '[Rr]ead-only file system'
	grep -qi 'open it read-only' "$T/err" && fail "advice that put can not follow"
	run 2 "$CAIRN" put "$1/new" c b
	says '[Rr]ead-only file system'
	for action in pin unpin close forget; do
		run 2 "$CAIRN" session "$1/s" $action a
		says '[Rr]ead-only file system'
	done
	run 2 "$CAIRN" drop "$1/s" --session a --yes
	says '[Rr]ead-only file system'
	run 2 "$CAIRN" get "$1/s" a "$1/got"
	says '[Rr]ead-only file system'
	# Two that look do not hinder each other.
	exec 9<"$1/s/lock"
	flock -s 9
	run 0 "$CAIRN" ls "$1/s"
	exec 9<&-
}

# A bind mount.
mkdir ro disk
run 0 "$CAIRN" put s a a --budget 64M
run 0 "$CAIRN" put s b b
sum=$(cat s/* | cksum)
mount --bind . ro && mount -o remount,ro,bind ro || exit 77
looks ro
check "nothing was written" test "$sum" = "$(cat s/* | cksum)"

# A file system of its own, turned read-only with what a killed put left.
truncate -s 160M image
mkfs.ext4 -qF image && mount -o loop image disk 2>/dev/null || { echo "no loop devices: the rest is left out"; finish; }
run 0 "$CAIRN" put disk/s a a --budget 64M
run 0 "$CAIRN" put disk/s b b
random c 20000000
mkfifo pipe
"$CAIRN" put disk/s c - <pipe >out 2>err &
owner=$!
exec 8>pipe
cat c >&8
sleep 0.3
kill -9 $owner
wait $owner 2>/dev/null
exec 8>&-
mount -o remount,ro disk || fail "still in use"
looks disk
# Nothing written since: the same once it is writable again.
mount -o remount,rw disk
run 0 "$CAIRN" put disk/s c c
run 0 "$CAIRN" get disk/s c got
same c got
run 0 "$CAIRN" get disk/s a got
same a got

# The device alone is read-only: looking goes on, and writing says which device.
run 0 "$CAIRN" put two b b --flash "$T/disk/device:64M"
mount -o remount,ro disk
run 0 "$CAIRN" get two b got
same b got
run 2 "$CAIRN" put two a a
says 'disk/device.*[Rr]ead-only'
mount -o remount,rw disk
run 0 "$CAIRN" put two a a
run 0 "$CAIRN" get two b got
same b got
finish
