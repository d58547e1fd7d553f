#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# cairnd as a container runs it: some user without a name, home or capabilities, a read-only root with one directory to
# write, little of /dev/shm, no /proc, little memory that may be locked, no io_uring, a control group's limit. What may
# not be set up here is said, and left out.
. "$(dirname "$0")/lib_serve.sh"
[ "$(id -u)" -eq 0 ] && setpriv --reuid 12345 --regid 12345 --clear-groups "$CAIRN" --version >/dev/null 2>&1 ||
	{ echo "skipped: needs root, to become somebody else, and a program that anybody can run"; exit 77; }
umask 022
chmod 755 "$T"
random file 67108864
chmod 644 file
left_out() { echo "left out: $*"; }

# without_ring COMMAND...: io_uring_setup ends with EPERM for it and what it starts, as under Docker's profile.
cat >without_ring <<'P'
#!/usr/bin/env python3
import ctypes, os, struct, sys
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06  # BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_RET|K
code = b"".join(struct.pack("HBBI", *step) for step in (
    (LOAD, 0, 0, 0), (EQUAL, 0, 1, 425), (RETURN, 0, 0, 0x00050001), (RETURN, 0, 0, 0x7FFF0000)))
buffer = ctypes.create_string_buffer(code, len(code))
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
program = Program(4, ctypes.addressof(buffer))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(program), 0, 0):
    sys.exit(126)
os.execvp(sys.argv[1], sys.argv[1:])
P
chmod 755 without_ring
python=/usr/bin/python3
cp -L "$CAIRN" cairn && cp -L "$(dirname "$CAIRN")/cairnd" cairnd && chmod 755 cairn cairnd

# somebody COMMAND...: as a user without a name or home, without capabilities.
somebody()
{
	exec env -i PATH=/usr/bin:/bin "LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-$(dirname "$CAIRN")}" \
		setpriv --reuid 12345 --regid 12345 --clear-groups --bounding-set=-all --inh-caps=-all --no-new-privs "$@"
}

as_somebody() { (somebody "$@"); }

# started STORE COMMAND...: a cairnd over that store, by that command; waits for it.
started()
{
	local store=$1
	shift
	rm -f server.log
	"$@" 2>server.log &
	server=$!
	for _ in $(seq 200); do
		grep -Eqs 'msg=ready ' server.log && return 0
		kill -0 $server 2>/dev/null || break
		sleep 0.1
	done
	running="$*"
	fail "it did not become ready: $(cat server.log)"
	return 1
}

# through STORE NAME: the file goes in and comes back, by the same user.
through()
{
	rm -f "$1.got"
	run 0 as_somebody "$T/cairn" put "unix:$T/$1/cairn.sock" "$2" file
	run 0 as_somebody "$T/cairn" get "unix:$T/$1/cairn.sock" "$2" "$T/$1/got" && mv "$1/got" "$1.got"
	same file "$1.got"
}

# finished: it ends as it should.
finished()
{
	kill -TERM $server
	wait $server
	local status=$?
	running="the end of cairnd: $(tail -3 server.log)"
	check "status 0, not $status" test $status -eq 0
	server=
}

options="--memory 32MiB --admin off --log-level info"

# Somebody without anything, memory that may not be locked.
install -d -o 12345 -g 12345 plain
started plain somebody prlimit --memlock=65536 "$T/cairnd" --dir "$T/plain" $options \
	--flash "$T/plain/flash.cairn:256MiB" && through plain one && finished
check "files are for their owner alone" test "$(stat -c %a plain/flash.cairn)" = 600

# io_uring is refused.
install -d -o 12345 -g 12345 ring
if as_somebody "$python" without_ring true 2>/dev/null; then
	started ring somebody "$python" without_ring "$T/cairnd" --dir "$T/ring" $options \
		--flash "$T/ring/flash.cairn:256MiB" && {
		run 0 as_somebody "$T/cairn" stat "unix:$T/ring/cairn.sock"
		prints 'threads'
		through ring one
		finished
	}
else
	left_out "io_uring refused: $(as_somebody "$python" without_ring true 2>&1 | tail -1); no seccomp filter may be set, or python3 is not everybody's"
fi

# A small /dev/shm, a root that is read-only but for the store, no /proc.
install -d -o 12345 -g 12345 bare
cat >bare.sh <<'P'
set -e
mount -t tmpfs -o size=64m tmpfs /dev/shm
mount --bind "$1" "$1"
mount -o remount,bind,ro / 2>/dev/null || echo "left out: a read-only root" >&3
umount -l /proc 2>/dev/null || mount -t tmpfs tmpfs /proc || echo "left out: no /proc" >&3
shift
exec "$@"
P
if unshare -m true 2>/dev/null && unshare -m mount -t tmpfs tmpfs /mnt 2>/dev/null; then
	exec 3>bare.left
	started bare unshare -m bash "$T/bare.sh" "$T/bare" env -i PATH=/usr/bin:/bin \
		"LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-$(dirname "$CAIRN")}" \
		setpriv --reuid 12345 --regid 12345 --clear-groups --no-new-privs "$T/cairnd" --dir "$T/bare" $options \
		--flash "$T/bare/flash.cairn:256MiB" && through bare one && finished
	exec 3>&-
	cat bare.left
else
	left_out "/dev/shm, read-only root, no /proc: mounts of its own are not allowed"
fi

# A control group's limit: what is over it is said; what fits works.
group= limit=
if mkdir "/sys/fs/cgroup/memory/cairn-$$" 2>/dev/null; then
	group=/sys/fs/cgroup/memory/cairn-$$ limit=memory.limit_in_bytes
elif [ -e /sys/fs/cgroup/cgroup.controllers ] && mkdir "/sys/fs/cgroup/cairn-$$" 2>/dev/null; then
	group=/sys/fs/cgroup/cairn-$$ limit=memory.max
fi
install -d -o 12345 -g 12345 group
if [ -n "$group" ] && echo 209715200 >"$group/$limit" 2>/dev/null; then
	within_group() { exec bash -c 'echo $$ >"$0" && exec "$@"' "$group/cgroup.procs" "$@"; }
	as_within() { (within_group "$@"); }
	run 2 as_within "$T/cairnd" --dir "$T/group" --memory 400MiB
	says 'memory of 400 MiB.* limit of 200 MiB in .*/'
	started group within_group setpriv --reuid 12345 --regid 12345 --clear-groups "$T/cairnd" --dir "$T/group" $options \
		--flash "$T/group/flash.cairn:256MiB" && through group one && finished
else
	left_out "a control group's limit: none may be made here"
fi
[ -z "$group" ] || rmdir "$group"
finish
