#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Others fill and free a disk while puts and gets go on, on tmpfs and on ext4: nothing crashes, what is got is right, and in
# the end there is room again.
# Needs root: file systems of its own, in namespaces that end with the script.
if [ -z "${CAIRN_ENV_INSIDE:-}" ]; then
	unshare --mount --pid --fork --mount-proc true 2>/dev/null || { echo "skipped: needs root, for mounts"; exit 77; }
	CAIRN_ENV_INSIDE=1 exec unshare --mount --pid --fork --kill-child --mount-proc bash "$0" "$@"
fi
. "$(dirname "$0")/lib.sh"
trap 'kill $outsider 2>/dev/null; cd /; umount -l "$T"/disk 2>/dev/null; rm -rf "$T"' EXIT
cd "$T" || exit 1
mkdir disk
outsider=
for i in 0 1 2 3 4 5 6 7; do
	random f$i 9000000
done
random kept 2000000

# Takes and frees as it likes, each time to the very end.
outside()
{
	local n=0
	trap - EXIT
	while :; do
		n=$((n + 1))
		dd if=/dev/zero of=disk/others.$((n % 3)) bs=64K 2>/dev/null
		dd if=/dev/zero of=disk/others.$((n % 3)) bs=4K oflag=append conv=notrunc 2>/dev/null
		sleep 0.$((RANDOM % 3))
		[ $((n % 3)) -eq 0 ] && rm -f disk/others.$((RANDOM % 3))
		sleep 0.$((RANDOM % 2))
	done
}

storm()
{
	local end=$((SECONDS + 18)) n=0 status good=0 file
	echo "$1"
	run 0 "$CAIRN" put disk/s kept kept --pin
	run 0 "$CAIRN" put disk/s f0 f0
	outside &
	outsider=$!
	while [ $SECONDS -lt $end ] && [ $failures -lt 5 ]; do
		n=$((n + 1))
		file=f$((n % 8))
		running="$1: put $n"
		timeout 60 "$CAIRN" put disk/s $file $file >"$T/out" 2>"$T/err"
		status=$?
		case $status in
			0) ;;
			2)
				says '[Nn]o room|full|[Nn]o space|floor'
				continue
				;;
			*) fail "status $status" ;;
		esac
		running="$1: get $n"
		timeout 60 "$CAIRN" get disk/s $file got >"$T/out" 2>"$T/err"
		status=$?
		case $status in
			0) same $file got && good=$((good + 1)) ;;
			1) ;; # others took its place meanwhile
			*) fail "status $status" ;;
		esac
		file=f$(((n + 3) % 8))
		"$CAIRN" get disk/s $file got >"$T/out" 2>"$T/err"
		case $? in 0) same $file got ;; 1) ;; *) fail "get of another" ;; esac
		run 0 "$CAIRN" get disk/s kept got
		same kept got
		cmp -s kept got || "$CAIRN" explain disk/s kept
	done
	kill $outsider
	wait $outsider 2>/dev/null
	echo "$good of $n puts"
	check "some puts went through" test $good -ge 1
	run 0 "$CAIRN" stat disk/s
	prints 'healthy'
	rm -f disk/others.*
	for file in f1 f2; do
		run 0 "$CAIRN" put disk/s $file $file
		run 0 "$CAIRN" get disk/s $file got
		same $file got
	done
	if "$CAIRN" help fsck >/dev/null 2>&1; then
		run 0 "$CAIRN" fsck disk/s
	fi
	umount disk
}

mount -t tmpfs -o size=160M none disk && storm tmpfs
truncate -s 200M image
mkfs.ext4 -qF image && mount -o loop image disk 2>/dev/null && storm ext4
finish
