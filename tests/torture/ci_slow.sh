#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# torture_slow on a device that a control group of blkio slows down to 4 MiB/s. Skipped where that cannot be had.
set -u
directory=$(mktemp -d "${CAIRN_SLOW_DIR:-/tmp}/slow.XXXXXX")
groups=/sys/fs/cgroup/blkio
group=$groups/cairn-slow.$$
cleanup()
{
	rm -rf "$directory"
	[ ! -d "$group" ] || rmdir "$group"
}
trap cleanup EXIT
skip()
{
	echo "skipped: $1"
	exit 77
}
[ "$(id -u)" -eq 0 ] || skip "not root"
device=$(stat -c '%d' "$directory")
device=$((device >> 8 & 0xfff)):$((device & 0xff))
mkdir "$group" 2>/dev/null || skip "no control groups of blkio"
for kind in read write; do
	echo "$device 4194304" >"$group/blkio.throttle.${kind}_bps_device" 2>/dev/null ||
		skip "device $device cannot be slowed down"
done
"$CAIRN_BUILD/torture_slow" "$directory/store" "$group/cgroup.procs" "$groups/cgroup.procs"
