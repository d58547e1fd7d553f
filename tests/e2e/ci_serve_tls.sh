#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# cairn serve over TLS, as users meet it: tokens made, listed, revoked and exchanged while it runs; tenants that do not
# see each other; what is said to those who come without.
. "$(dirname "$0")/lib_serve.sh"

export HOME=$T/home XDG_CONFIG_HOME=
mkdir -p "$HOME/.config/cairn"
umask 077
head -c 3000000 /dev/urandom >a
head -c 500000 /dev/urandom >b
port=$((20000 + RANDOM % 20000))
far=tcp://127.0.0.1:$port
none() { ! "$@"; }

# Tokens may be there before the server.
mkdir s
run 0 "$CAIRN" token new s --tenant chat --ttl 30d
cp out chat
run 0 "$CAIRN" token new s --tenant code
cp out code
run 0 "$CAIRN" token new s --admin
cp out admin
serve --dir s --memory 32MiB --listen $far
check 'the key is its owners alone' test "$(stat -c %a s/tls.pem)" = 600
check 'the list, too' test "$(stat -c %a s/tokens)" = 600
check 'no secret is in it' none grep -q "$(cut -d_ -f3 chat)" s/tokens

# Without a token, and with one that others may read.
run 2 "$CAIRN" ls $far
says 'not to be trusted'
cp chat "$HOME/.config/cairn/token"
chmod 644 "$HOME/.config/cairn/token"
run 2 "$CAIRN" ls $far
says 'can be read by others.*chmod 600'
chmod 600 "$HOME/.config/cairn/token"

# Two tenants, one name: each has its own.
run 0 "$CAIRN" put $far notes a
run 0 "$CAIRN" put $far notes b --token code
run 0 "$CAIRN" get $far notes got
same a got
run 0 "$CAIRN" get $far notes got --token code
same b got
run 0 "$CAIRN" ls $far --json
json '[x["tenant"] for x in j["sessions"]] == ["chat"]'
run 2 "$CAIRN" get $far notes got --tenant code
says 'the token is of tenant "chat", not "code"'
run 0 "$CAIRN" ls $far --json --token admin
json 'sorted(x["tenant"] for x in j["sessions"]) == ["chat", "code"]'
run 0 "$CAIRN" get $far notes got --tenant code --token admin
same b got
run 1 "$CAIRN" get $far nobody got

# The socket asks nobody: its permission bits have.
run 0 "$CAIRN" ls s --json
json 'len(j["sessions"]) == 2'

# Revoked while it runs; exchanged for a new one.
run 0 "$CAIRN" token list s --json
json 'len(j) == 3 and sum(x["admin"] for x in j) == 1 and not any(x["expired"] for x in j)'
run 0 "$CAIRN" token revoke s "$(cut -d_ -f2 chat)"
run 2 "$CAIRN" ls $far
says 'the token is not good here: unknown, expired or revoked'
run 1 "$CAIRN" token revoke s "$(cut -d_ -f2 chat)"
run 0 "$CAIRN" token new s --tenant chat
cp out "$HOME/.config/cairn/token"
run 0 "$CAIRN" get $far notes got
same a got
sed 's/_[0-9a-f]*$/_0000000000000000000000000000000000000000000000000000000000000000/' code >other
run 2 "$CAIRN" ls $far --token other
says 'another key than the token names'
run 2 "$CAIRN" ls $far --token nowhere
says "the token's file nowhere: No such file"
run 2 "$CAIRN" ls tcp+plain://127.0.0.1:$port
says 'this port wants TLS and a token'
run 2 "$CAIRN" token new
run 2 "$CAIRN" token news s
says 'did you mean "new"'
end

# Another server with the same key and tokens: the same token is good for both.
mkdir s2
cp s/tls.pem s/tokens s2
serve --dir s2 --memory 32MiB --listen $far
run 0 "$CAIRN" put $far notes a
run 0 "$CAIRN" get $far notes got
same a got
end

# Without TLS: one clear line for who wants it; a warning where others may come in.
serve --dir s --memory 32MiB --listen tcp+plain://127.0.0.1:$port --listen tcp+plain://0.0.0.0:$((port + 1))
run 2 "$CAIRN" ls $far
says 'does not speak TLS 1.3'
check 'a warning' grep -q "level=warning.*neither TLS nor tokens.*0.0.0.0" server.log
check 'none for loopback' none grep -q "level=warning.*127.0.0.1" server.log
end

# A certificate of one's own, and a new one without a restart.
cp s2/tls.pem cert.pem
cat >conf.yaml <<END
dir: s
memory: 32MiB
listen: $far
tls_cert: cert.pem
END
serve conf.yaml
run 0 "$CAIRN" ls $far
rm -f fresh/tls.pem
mkdir fresh
run 0 "$CAIRN" token new fresh
cp fresh/tls.pem cert.pem
kill -HUP $server
for _ in $(seq 50); do
	grep -q msg=reloaded server.log && break
	sleep 0.1
done
run 2 "$CAIRN" ls $far
says 'another key than the token names'
run 0 "$CAIRN" token new s --tenant chat --cert cert.pem
cp out "$HOME/.config/cairn/token"
run 0 "$CAIRN" get $far notes got
same a got
end
finish
