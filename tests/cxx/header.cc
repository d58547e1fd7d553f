// SPDX-License-Identifier: Apache-2.0
// The public header from C++, and the shared library: it compiles, links, and calls have C linkage.
#include <cairn/cairn.h>

#include <cstdio>
#include <cstring>

int main()
{
	char bytes[4] = {};
	struct cairn_buf buf = cairn_buf_of(bytes, sizeof bytes);
	struct cairn_options options = {};
	options.size = sizeof options;

	if (buf.length != sizeof bytes || std::strcmp(cairn_version(), CAIRN_VERSION) != 0 ||
	    std::strcmp(cairn_status_name(CAIRN_MISS), "miss") != 0) {
		std::fprintf(stderr, "cxx_header: header and library disagree\n");
		return 1;
	}
	return 0;
}
