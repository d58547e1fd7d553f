#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# As installed: what lies where, pkg-config, programs in C11 and C++17 against the shared and the static library, moved too.
. "$(dirname "$0")/lib.sh"
: "${CAIRN_BUILD:=$(dirname "$CAIRN")}"
command -v cmake >/dev/null && command -v pkg-config >/dev/null || { echo "skipped: needs cmake and pkg-config"; exit 77; }
grep -q '^CAIRN_SANITIZE:.*=..*' "$CAIRN_BUILD/CMakeCache.txt" &&
	{ echo "skipped: a library with sanitizers does not go with other programs"; exit 77; }
[ -e "$CAIRN_BUILD/libcairn.so" ] && [ -e "$CAIRN_BUILD/libcairn.a" ] || { echo "skipped: not all is built"; exit 77; }
cd "$T" || exit 1
cc=${CC:-cc}
cxx=${CXX:-c++}

# The way of a package: DESTDIR, a prefix; nothing outside of it.
run 0 env DESTDIR="$T/stage" cmake --install "$CAIRN_BUILD" --prefix /opt/cairn
tree=stage/opt/cairn
lib=$(dirname "$(find $tree -name libcairn.a)")
for file in bin/cairn include/cairn/cairn.h; do
	check "$file" test -f $tree/$file
done
check "no other header" test "$(find $tree/include -type f | wc -l)" -eq 1
check "cairn.pc" test -f "$lib/pkgconfig/cairn.pc"
check "libcairn.so leads to the soname" test "$(readlink "$lib/libcairn.so")" = libcairn.so.0
check "the soname leads to the version" test -f "$lib/libcairn.so.0"
grep -rIl "$CAIRN_BUILD" stage >left 2>/dev/null
check "no path of the build directory in text files: $(head -1 left)" test ! -s left
check "others may read it" test -z "$(find stage ! -type l ! -perm -o=r)"
running="readelf -d"
readelf -dW "$lib/libcairn.so" $tree/bin/cairn >"$T/out"
grep -q 'R.*PATH' "$T/out" && fail "a run path"
readelf -dW "$lib/libcairn.so" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' >needed
check "needs no more than libssl, libcrypto, libxxhash, liburing and libc: $(tr '\n' ' ' <needed)" \
	test -z "$(grep -vE '^(libssl|libcrypto|libxxhash|liburing|libc|libpthread|ld-linux[-_a-z0-9]*)\.so' needed)"
nm -D --defined-only "$lib/libcairn.so" | awk '$2 != "A" { print $3 }' | sed 's/@.*//' >exported
check "exports cairn_* alone: $(grep -v '^cairn_' exported | head -3 | tr '\n' ' ')" test -z "$(grep -v '^cairn_' exported)"
check "exports something" test "$(wc -l <exported)" -gt 50

# The installed program.
random file 1500000
run 0 $tree/bin/cairn put s a file --budget 64M
run 0 $tree/bin/cairn get s a got
same file got

# Moved to another place, as tarballs are.
mv stage/opt/cairn "moved"
lib=moved/${lib#"$tree/"}
export PKG_CONFIG_PATH=$T/$lib/pkgconfig
run 0 pkg-config --validate cairn
run 0 pkg-config --modversion cairn
prints "^$("$CAIRN" --version | cut -d' ' -f2)\$"
run 0 pkg-config --cflags --libs cairn
check "no private libraries when shared" test -z "$(grep -o 'lcrypto\|lxxhash' out)"
run 0 pkg-config --cflags --libs --static cairn
prints 'lcrypto'

cat >program.c <<'EOF'
#include <cairn/cairn.h>
#include <stdio.h>
#include <string.h>

/* Opens, puts a block of 300,000 bytes, closes, opens again and gets it. */
int main(int argc, char **argv)
{
	static unsigned char block[300000], back[300000];
	static const char part[] = "kv";
	struct cairn_options options;
	struct cairn_space_desc desc;
	struct cairn_group group;
	struct cairn_flash flash;
	cairn_digest weights;
	cairn_space *space;
	cairn *store;

	memset(&options, 0, sizeof options);
	memset(&desc, 0, sizeof desc);
	memset(&group, 0, sizeof group);
	memset(&flash, 0, sizeof flash);
	memset(&weights, 7, sizeof weights);
	for (size_t i = 0; i < sizeof block; i++)
		block[i] = (unsigned char)(i * 2654435761u >> 13);
	if (argc < 2 || strcmp(cairn_version(), CAIRN_VERSION) != 0)
		return 2;
	flash.budget_bytes = (uint64_t)64 << 20;
	options.size = sizeof options;
	options.flags = CAIRN_OPEN_CREATE;
	options.memory_bytes = (uint64_t)32 << 20;
	options.flash = &flash;
	options.nflash = 1;
	desc.size = sizeof desc;
	desc.model = "a model";
	desc.weights = &weights;
	desc.kv_dtype = "f16";
	group.block_tokens = 16;
	group.name = part;
	desc.groups = &group;
	desc.ngroups = 1;
	for (int round = 0; round < 2; round++) {
		struct cairn_item item;
		struct cairn_call call;
		struct cairn_buf buf;

		memset(&item, 0, sizeof item);
		memset(&call, 0, sizeof call);
		memset(&item.key, 42, sizeof item.key);
		call.size = sizeof call;
		call.durability = CAIRN_DURABLE_FLASH;
		buf = cairn_buf_of(round ? back : block, sizeof block);
		item.bufs = &buf;
		item.nbufs = 1;
		if (cairn_open(argv[1], &options, &store) || cairn_describe(store, &desc, &space)) {
			fprintf(stderr, "%s\n", cairn_error_text());
			return 1;
		}
		long done = round ? cairn_get(store, space, &item, 1, &call) : cairn_put(store, space, &item, 1, &call);
		if (done < 0 || item.status != CAIRN_OK) {
			fprintf(stderr, "%ld %s: %s\n", done, cairn_status_name(item.status), cairn_error_text());
			return 1;
		}
		if (cairn_close(store))
			return 1;
	}
	if (memcmp(block, back, sizeof block) != 0)
		return 1;
	printf("same bytes\n");
	return 0;
}
EOF
cp program.c program.cc
printf '#include <cairn/cairn.h>\n#include <cairn/cairn.h>\nint main(void) { return cairn_version()[0] == 0; }\n' >alone.c

# built NAME COMPILER...: it compiles without a word, and runs.
built()
{
	local name=$1
	shift
	run 0 "$@" -o $name
	quiet
	run 0 env LD_LIBRARY_PATH="$T/$lib" ./$name store.$name
	prints '^same bytes$'
	run 0 "$CAIRN" stat store.$name --json
	json '[t for t in j["tiers"] if t["tier"] == "flash"][0]["parts"] >= 1'
}

warnings="-Wall -Wextra -pedantic -Werror"
shared=$(pkg-config --cflags --libs cairn)
run 0 $cc -std=c11 $warnings -Wshadow -Wstrict-prototypes alone.c $shared -o alone
quiet
built c11 $cc -std=c11 $warnings program.c $shared
built gnu17 $cc -std=gnu17 -O2 $warnings program.c $shared
ldd c11 2>/dev/null | grep -q 'libcairn.so.0' || fail "c11 does not use the shared library"
static=$(pkg-config --cflags --libs --static cairn | sed "s,-lcairn,$T/$lib/libcairn.a,")
built static $cc -std=c11 $warnings program.c $static
ldd static 2>/dev/null | grep -q libcairn && fail "static uses the shared library"
if command -v $cxx >/dev/null; then
	built cxx17 $cxx -std=c++17 $warnings program.cc $shared
	built cxx20 $cxx -std=c++20 $warnings program.cc $shared
	built cxx_static $cxx -std=c++17 $warnings program.cc $static
fi
if command -v clang >/dev/null; then
	built clang clang -std=c11 -Weverything -Wno-unknown-warning-option -Wno-unsafe-buffer-usage -Wno-declaration-after-statement -Wno-padded \
		-Wno-reserved-macro-identifier -Wno-conversion -Wno-sign-conversion -Wno-pre-c11-compat -Werror program.c $shared
fi

# A store of the library and the program are one thing.
run 0 "$CAIRN" ls store.c11 --spaces
prints 'a model'
finish
