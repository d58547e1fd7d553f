#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Raw block devices, here loops over files: cairn init refuses all that somebody could miss, and a store lives on one,
# through both engines, damage and reopening. Needs root and a loop device.
. "$(dirname "$0")/lib.sh"
command -v losetup >/dev/null && [ "$(id -u)" -eq 0 ] || { echo "skipped: needs root and losetup"; exit 77; }
M=1048576
loops=
cleanup()
{
	cd /
	umount "$T/mnt" 2>/dev/null
	for loop in $loops; do losetup -d "$loop" 2>/dev/null; done
	rm -rf "$T"
}
trap cleanup EXIT
cd "$T" || exit 1

# attach FILE MIB: a loop over a new file, in $loop.
attach()
{
	[ -e "$1" ] || truncate -s "$2M" "$1"
	loop=$(losetup --find --show "$1" 2>/dev/null) || { echo "skipped: losetup gets no loop device"; exit 77; }
	loops="$loops $loop"
}
detach() { losetup -d "$1"; }
attach disk 256
disk=$loop
random f1 $((20 * M))
random f2 $((20 * M))

# ---- what is refused, and that nothing was written ----

before=$(sha256sum <"$disk")
run 2 "$CAIRN" put s f1 f1 --flash "$disk"
says "run cairn init|see cairn init $disk"
run 2 "$CAIRN" init "$disk" </dev/null
says 'no terminal to ask on; add --yes'
run 2 "$CAIRN" init f1 --yes
says 'f1 is not a block device'
run 2 "$CAIRN" init "$T" --yes
says 'not a block device'
run 2 "$CAIRN" init /dev/nothing --yes
says 'cannot open /dev/nothing'
running='refusals'
[ "$before" = "$(sha256sum <"$disk")" ] || fail "a refusal wrote to the device"
same "f1" "$T/f1"

attach small 32
run 2 "$CAIRN" init "$loop" --yes
says 'needs at least 67108864'

# One that is good and one that is not: nothing is written to either.
if command -v mkfs.ext4 >/dev/null; then
	attach ext4 128
	mkfs.ext4 -q -F "$loop" || fail "mkfs.ext4"
	before=$(sha256sum <"$loop")
	run 2 "$CAIRN" init "$disk" "$loop" --yes
	says "$loop (holds ext4|is not empty)"
	PATH=/nonexistent run 2 "$CAIRN" init "$loop" --yes # without blkid
	says "$loop is not empty \(there is something at byte 10[0-9]*\)"
	[ "$before" = "$(sha256sum <"$loop")" ] || fail "init wrote to a file system"
	mkdir mnt
	if mount "$loop" mnt; then
		run 2 "$CAIRN" init "$loop" --yes
		says "$loop is mounted or used"
		run 2 "$CAIRN" put s f1 f1 --flash "$loop"
		says "$loop is mounted or used"
		umount mnt
	fi
fi
attach tail 128
printf x | dd of="$loop" bs=1 seek=$((128 * M - 5000)) conv=notrunc 2>/dev/null
run 2 "$CAIRN" init "$loop" --yes
says "something at byte $((128 * M - 5000))"
attach head 128
printf x | dd of="$loop" bs=1 seek=$((M - 1)) conv=notrunc 2>/dev/null
run 2 "$CAIRN" init "$loop" --yes
says "something at byte $((M - 1))"

# Somebody who may not.
if command -v setpriv >/dev/null; then
	chmod 711 "$T"
	cp "$CAIRN" cairn
	run 2 setpriv --reuid=65534 --regid=65534 --clear-groups "$T/cairn" init "$disk" --yes
	says 'cannot open .*: Permission denied'
fi

# ---- a store on it ----

run 0 "$CAIRN" init "$disk" --yes
prints "$disk: 256.0 MiB, ready"
run 0 "$CAIRN" init "$disk" --yes --json # again: it is nobody's yet
json "j[0]['bytes'] == $((256 * M))"
run 2 "$CAIRN" put s f1 f1 --flash "$disk:257M"
says 'give at most what it has'
rm -rf s
for engine in uring threads; do
	run 0 "$CAIRN" put s f1 f1 --flash "$disk" --io auto
	run 0 "$CAIRN" put s f2 f2 --io $engine
	quiet
	run 0 "$CAIRN" get s f1 got --io $engine
	same f1 got
	run 0 "$CAIRN" get s f2 got --io $engine
	same f2 got
done
run 0 "$CAIRN" stat s --json
json "j['devices'][0]['path'] == '$disk' and j['devices'][0]['budget_bytes'] == $((256 * M))"
run 0 "$CAIRN" fsck s
prints 'whole'
run 2 "$CAIRN" put other f1 f1 --flash "$disk"
says "is another store's"

# More than fits, several times: what is old goes, and the device stays as large as it is.
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14; do
	random g $((20 * M))
	head -c 8 /dev/urandom >>g
	run 0 "$CAIRN" put s g$i g
done
run 0 "$CAIRN" get s g14 got
same g got
run 0 "$CAIRN" put s kept f1 --pin
# Damage: the first label, then a payload.
dd if=/dev/zero of="$disk" bs=4096 count=1 conv=notrunc 2>/dev/null
run 0 "$CAIRN" get s kept got
same f1 got
run 0 "$CAIRN" fsck s --repair
run 0 "$CAIRN" fsck s
run 0 "$CAIRN" get s kept got
same f1 got

# Killed in the middle of a put, often: the next one finds the device free and whole.
for i in 1 2 3 4 5; do
	"$CAIRN" put s killed f2 >/dev/null 2>&1 &
	pid=$!
	python3 -c "import time; time.sleep(0.0$((i * 9)))"
	kill -9 $pid 2>/dev/null
	wait $pid 2>/dev/null
	run 0 "$CAIRN" get s kept got
	same f1 got
done

# A device of a store may be prepared anew, and holds nothing of it then.
run 0 "$CAIRN" init "$disk" --yes
rm -rf s
run 0 "$CAIRN" put s f2 f2 --flash "$disk"
run 1 "$CAIRN" get s kept got
run 0 "$CAIRN" get s f2 got
same f2 got
finish
