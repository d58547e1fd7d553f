# SPDX-License-Identifier: Apache-2.0
# torture_net for a few seeds; CAIRN_NET_SEEDS for more, CAIRN_NET_FIRST for others. Most of its time it waits: eight
# processes at a time.
set -eu
seeds=${CAIRN_NET_SEEDS:-8} first=${CAIRN_NET_FIRST:-1} processes=8
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
export TMPDIR=$directory
each=$(((seeds + processes - 1) / processes))
pids=()
for ((i = 0; i < processes; i++)); do
	from=$((first + i * each))
	"$CAIRN_BUILD/torture_net" --seeds "$from-$((from + each - 1))" >"$directory/log.$i" 2>&1 &
	pids+=($!)
done
failed=0
for pid in "${pids[@]}"; do
	wait "$pid" || failed=1
done
if ((failed)); then
	grep -hv '^seed' "$directory"/log.*
	exit 1
fi
awk '/^seed/ { n++; calls += $3; bad += $5; for (i = 9; i < NF; i += 2) struck[$i] += $(i + 1) }
	END { printf "%d seeds, %d calls, %d of them failed;", n, calls, bad; for (f in struck) printf " %s %d", f, struck[f]
	print "" }' "$directory"/log.*
