#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Several flash devices on file systems of their own: one that is away takes only its own with it, and says so; back again,
# everything is there but what was dropped meanwhile.
# Needs root: file systems of its own, in namespaces that end with the script.
if [ -z "${CAIRN_ENV_INSIDE:-}" ]; then
	unshare --mount --pid --fork --mount-proc true 2>/dev/null || { echo "skipped: needs root, for mounts"; exit 77; }
	CAIRN_ENV_INSIDE=1 exec unshare --mount --pid --fork --kill-child --mount-proc bash "$0" "$@"
fi
. "$(dirname "$0")/lib.sh"
trap 'cd /; umount -l "$T"/one "$T"/two 2>/dev/null; rm -rf "$T"' EXIT
cd "$T" || exit 1
mkdir one two
for disk in one two; do
	truncate -s 160M image.$disk
	mkfs.ext4 -qF image.$disk && mount -o loop image.$disk $disk 2>/dev/null || { echo "skipped: no loop devices"; exit 77; }
done

names="f1 f2 f3 f4 f5 f6"
for name in $names f7; do
	random $name 5000000
done
put="$CAIRN put s"
run 0 $put f1 f1 --flash "$T/one:128M" --flash "$T/two/device:128M"
for name in f2 f3 f4 f5 f6; do
	run 0 $put $name $name
done
check "a directory gets a file, a file is one" test -f one/flash.cairn -a -f two/device
run 0 "$CAIRN" stat s --json
json '[d["path"].rsplit("/", 2)[1] for d in j["devices"]] == ["one", "two"]'
json 'all(d["state"] == "healthy" and d["live_bytes"] > 4 << 20 for d in j["devices"])'

# served: sets $whole to the names of files that are whole. All others are gone, in one line, with nothing written.
served()
{
	local name status
	whole=
	for name in $names; do
		rm -f got
		running="get $name"
		"$CAIRN" get s $name got >"$T/out" 2>"$T/err"
		status=$?
		if [ $status -eq 0 ]; then
			whole="$whole $name"
			same $name got
			continue
		fi
		check "status 1" test $status -eq 1
		[ "$(wc -l <"$T/err")" -eq 1 ] || fail "not one line"
		check "no file" test ! -e got
	done
}

served
check "all are there" test "$whole" = " $names"

# One away, then the other: each serves its own, and between them they have all.
umount two
run 0 "$CAIRN" stat s
prints '^device 1 .*two/device, gone'
prints '^device 0 .*one/flash.cairn, healthy'
run 0 "$CAIRN" ls s
served
first=$whole
check "the first device serves something: $first" test -n "$first"
check "and not all" test "$first" != " $names"
for name in $names; do
	case "$first " in *" $name "*) continue ;; esac
	"$CAIRN" get s $name got 2>"$T/err" >"$T/out"
	running="get $name, of the device that is away"
	says 'device|two'
	break
done
check "nothing is made where it was" test -z "$(ls -A two)"
mount -o loop image.two two
served
check "back: all are there" test "$whole" = " $names"
umount one
run 0 "$CAIRN" stat s
prints '^device 0 .*one/flash.cairn, gone'
served
second=$whole
check "the second device serves something: $second" test -n "$second"
for name in $names; do
	case "$first$second " in *" $name "*) ;; *) fail "$name is served by neither device alone" ;; esac
done

# Puts go on with the one that is there; decisions hold for the one that is away.
run 0 $put f7 f7
set -- $second
away=
for name in $names; do
	case "$second " in *" $name "*) ;; *) away="$away $name" ;; esac
done
dropped="$1 $2 ${away##* }"
run 0 "$CAIRN" drop s --session $1 --yes
run 0 "$CAIRN" session s forget $2
run 0 "$CAIRN" session s forget ${away##* } # all of its blocks are away
mount -o loop image.one one
for name in $dropped; do
	run 1 "$CAIRN" get s $name got
done
run 0 "$CAIRN" put s small "$CAIRN_SOURCE/README.md" # a store that writes makes both know it
umount two
for name in $dropped; do
	run 1 "$CAIRN" get s $name got
	says 'no session'
done
mount -o loop image.two two
left=
for name in $names f7; do
	case " $dropped " in *" $name "*) ;; *) left="$left $name" ;; esac
done
names=$left
served
check "all but the dropped ($dropped): $whole" test "$whole" = "$names"
run 0 "$CAIRN" ls s --json
json "sorted(s['name'] for s in j['sessions']) == sorted('$names small'.split())"

# Both away: nothing is taken for an empty store.
umount one two
running="ls, both away"
"$CAIRN" ls s >"$T/out" 2>"$T/err"
check "ls says that devices are gone" grep -qE 'gone|away|missing' "$T/err" "$T/out"
run 2 $put f1 f1
says 'device'
check "nothing is made where they were" test -z "$(ls -A one two | grep -v ':$')"
mount -o loop image.one one
mount -o loop image.two two
served
check "all are there again: $whole" test "$whole" = "$names"

# One is replaced by an empty disk: the other's are served, and the store can be written.
umount two
truncate -s 0 image.two
truncate -s 160M image.two
mkfs.ext4 -qF image.two
mount -o loop image.two two
served
check "something is served: $whole" test -n "$whole"
run 0 $put f7 f7
run 0 "$CAIRN" get s f7 got
same f7 got

# More of them than there may be.
run 2 "$CAIRN" put many f1 f1 $(printf -- '--flash %s:64M ' "$T"/one/d{1..17})
says '16'
finish
