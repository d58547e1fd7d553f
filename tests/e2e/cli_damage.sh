#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Damage on flash: never a wrong byte, status 1 with the block that is bad, and everything else still there.
. "$(dirname "$0")/lib.sh"
cd "$T" || exit 1
M=1048576

# damage FILE DEVICE BLOCK: flips a bit of that block of FILE where it lies on the device.
damage()
{
	python3 - "$@" <<'PYTHON' || fail "block $3 of $1 is not on the device"
import sys
file, device, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
with open(file, "rb") as source:
    source.seek(number << 20)
    marker = source.read(1 << 20)[512:576]
with open(device, "r+b") as target:
    at = target.read().find(marker)
    if at < 0:
        sys.exit(1)
    target.seek(at + 7)
    target.write(bytes([marker[7] ^ 16]))
PYTHON
}

random three $((3 * M + 1000))
random other $((2 * M))
random late $((24 * M))
run 0 "$CAIRN" put store three three --budget 128M
run 0 "$CAIRN" put store other other
run 0 "$CAIRN" put store late late
device=store/flash.cairn
check "the device is a file in the store" test -f $device

echo mine >mine
cp mine mine.before
damage three $device 1
run 1 "$CAIRN" get store three mine
says '"three": block 1 of 4 \(bytes from 1048576\) is damaged.*nothing was written'
same mine mine.before
run 1 "$CAIRN" get store three new
check "no new file" test ! -e new
# A second look gives the same answer.
run 1 "$CAIRN" get store three mine
says '"three": block 1 of 4 \(bytes from 1048576\) is damaged.*nothing was written'
run 0 "$CAIRN" get store other out
same other out

# Into a pipe: the bytes before it are right, and the end is not taken for good.
damage late $device 20
"$CAIRN" get store late - >piped 2>err
check "status 1" test $? -eq 1
check "it says what is wrong" grep -q 'block 20 of 24 .*is damaged.*what was written before it is not whole' err
cmp -s piped <(head -c $((20 * M)) late) || fail "other bytes than those before block 20"

# Putting it again mends it.
run 0 "$CAIRN" put store three three
run 0 "$CAIRN" get store three mine
same three mine

# Every byte of the device's first page, zeroed: whatever happens, nothing wrong comes out.
cp -r store broken
dd if=/dev/zero of=broken/flash.cairn bs=4096 count=1 conv=notrunc status=none
"$CAIRN" get broken other broken.out >out 2>err
case $? in 0) same other broken.out ;; 1 | 2) check "no file" test ! -e broken.out ;; *) fail "it crashed" ;; esac

# Cut off: the same.
cp -r store cut
truncate -s 3M cut/flash.cairn
"$CAIRN" get cut other cut.out >out 2>err
case $? in 0) same other cut.out ;; 1 | 2) check "no file" test ! -e cut.out ;; *) fail "it crashed" ;; esac
"$CAIRN" ls cut >out 2>err || check "one line" test "$(wc -l <err)" -eq 1

# Many single bits, all over the device.
python3 - <<'PYTHON'
import os, random, shutil
shutil.copytree("store", "rotten")
size = os.path.getsize("rotten/flash.cairn")
generator = random.Random(7)
with open("rotten/flash.cairn", "r+b") as file:
    for _ in range(3000):
        at = generator.randrange(size)
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1 << generator.randrange(8)]))
PYTHON
for name in three other late; do
	"$CAIRN" get rotten $name rotten.out >out 2>err
	status=$?
	case $status in
		0) same $name rotten.out ;;
		1 | 2) check "one line" test "$(wc -l <err)" -eq 1; check "no file" test ! -e rotten.out ;;
		*) fail "it crashed with $status" ;;
	esac
	rm -f rotten.out
done

# The identity file.
cp -r store nameless
python3 -c '
with open("nameless/cairn.id", "r+b") as file:
    size = len(file.read()); file.seek(0); file.write(bytes(size))'
run 2 "$CAIRN" ls nameless
says 'damaged|identity'
finish
