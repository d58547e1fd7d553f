#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What cairnd tells the service manager: ready when it serves, alive while it does, ending when it is told to end.
. "$(dirname "$0")/lib.sh"
cd "$T" || exit 1

cat >manager.py <<'E2'
import os, signal, socket, subprocess, sys
cairn, path = sys.argv[1], os.path.abspath("notify")
manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
manager.bind(path)
manager.settimeout(30)
environment = dict(os.environ, NOTIFY_SOCKET=path, WATCHDOG_USEC="1000000")
server = subprocess.Popen([cairn, "serve", "--dir", "s", "--memory", "16MiB", "--flash", "s.flash:64MiB"],
                          env=environment, stderr=subprocess.DEVNULL)
said = []
try:
    while said.count("WATCHDOG=1") < 3:
        said += manager.recv(4096).decode().split("\n")
    if not subprocess.run([cairn, "ls", "s"], stdout=subprocess.DEVNULL).returncode == 0:
        sys.exit("it said that it was ready, and serves nobody")
    server.send_signal(signal.SIGTERM)
    while "STOPPING=1" not in said:
        said += manager.recv(4096).decode().split("\n")
    status = server.wait(60)
finally:
    server.kill()
print(" ".join(said))
sys.exit(status)
E2
run 0 python3 manager.py "$CAIRN"
check "ready comes first" grep -q '^READY=1 ' "$T/out"
check "alive three times" grep -Eq '(WATCHDOG=1 ){3}' "$T/out"
check "ending comes last" grep -q 'STOPPING=1$' "$T/out"
