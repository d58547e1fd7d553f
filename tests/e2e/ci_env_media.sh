#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# File systems of all kinds: without O_DIRECT, without fallocate or holes, layered, small blocks; all work the same.
# Needs root: file systems of its own, in namespaces that end with the script.
if [ -z "${CAIRN_ENV_INSIDE:-}" ]; then
	unshare --mount --pid --fork --mount-proc true 2>/dev/null || { echo "skipped: needs root, for mounts"; exit 77; }
	CAIRN_ENV_INSIDE=1 exec unshare --mount --pid --fork --kill-child --mount-proc bash "$0" "$@"
fi
. "$(dirname "$0")/lib.sh"
trap 'cd /; umount -l "$T"/disk "$T"/parts 2>/dev/null; rm -rf "$T"' EXIT
cd "$T" || exit 1
mkdir disk parts
for name in a b c d; do
	random $name 9000000
done

# works KIND: put, reopen, evict, drop, get into it, kill.
works()
{
	local name
	local before=$failures
	echo "$1"
	for name in a b c d; do
		run 0 "$CAIRN" put disk/s $name $name --budget 64M
		quiet
		[ $failures -eq $before ] || { umount disk; return; } # all else would fail too
	done
	run 0 "$CAIRN" get disk/s d disk/got
	same d disk/got
	run 0 "$CAIRN" get disk/s d disk/got # in place of the other
	same d disk/got
	rm -f disk/got
	run 0 "$CAIRN" session disk/s forget d
	run 1 "$CAIRN" get disk/s d disk/got
	run 0 "$CAIRN" put disk/s e a
	"$CAIRN" put disk/s e b >out 2>err &
	sleep 0.05
	kill -9 $! 2>/dev/null
	wait $! 2>/dev/null
	run 0 "$CAIRN" get disk/s e got
	cmp -s got a || same got b
	run 0 "$CAIRN" put disk/s e c
	run 0 "$CAIRN" get disk/s e got
	same got c
	run 0 "$CAIRN" stat disk/s
	prints 'healthy'
	check "no rest of anything" test -z "$(find disk -name '.cairn-*' -o -name '*.new')"
	umount disk
}

mount -t tmpfs -o size=160M none disk && works tmpfs
mount -t ramfs none disk && works ramfs
truncate -s 160M image
for kind in "-t ext4" "-t ext4 -b 1024" "-t ext2" "-t ext4 -O bigalloc -C 65536"; do
	mke2fs -qF $kind image >out 2>&1 && mount -o loop image disk 2>/dev/null && works "$kind"
done
for kind in xfs btrfs vfat f2fs; do
	command -v mkfs.$kind >/dev/null || continue
	rm -f image
	truncate -s 400M image
	mkfs.$kind image >out 2>&1 && mount -o loop image disk 2>/dev/null && works $kind
done
mount -t tmpfs -o size=160M none parts
mkdir parts/lower parts/upper parts/work
mount -t overlay overlay -o lowerdir=parts/lower,upperdir=parts/upper,workdir=parts/work disk && works overlay
# A store in a layer below, as an image of a container has it: it is read, and copied up when it is written.
run 0 "$CAIRN" put parts/lower/s a a --budget 64M
sum=$(cat parts/lower/s/* | cksum)
rm -rf parts/upper parts/work
mkdir parts/upper parts/work
mount -t overlay overlay -o lowerdir=parts/lower,upperdir=parts/upper,workdir=parts/work disk || finish
run 0 "$CAIRN" get disk/s a got --read-only
same a got
run 0 "$CAIRN" ls disk/s
check "looking copies nothing up" test ! -e parts/upper/s/flash.cairn
run 0 "$CAIRN" put disk/s b b
for name in a b; do
	run 0 "$CAIRN" get disk/s $name got
	same $name got
done
check "the layer below is as it was" test "$sum" = "$(cat parts/lower/s/* | cksum)"
finish
