/* SPDX-License-Identifier: Apache-2.0 */
/* The memory limits of control groups. See limit.h. */
#include "daemon/limit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A limit in a file; none where there is no such file, or no number in it ("max"). */
static uint64_t limit_read(const char *file)
{
	char text[64] = "";
	FILE *in = fopen(file, "re");
	if (!in)
		return UINT64_MAX;
	char *got = fgets(text, sizeof(text), in), *end;
	fclose(in);
	uint64_t limit = got ? strtoull(text, &end, 10) : 0;
	/* v1 says the largest number of pages where there is none. */
	return !got || end == text || limit >= INT64_MAX / 2 ? UINT64_MAX : limit;
}

/* The group at `path` under a hierarchy's mount, and all above it up to the mount. */
static void limit_climb(const char *mount, const char *name, char *path, uint64_t *limit, char ret_file[LIMIT_FILE])
{
	for (;;) {
		char file[LIMIT_FILE];
		int n = snprintf(file, sizeof(file), "%s%s/%s", mount, path, name);
		uint64_t found = n < (int)sizeof(file) ? limit_read(file) : UINT64_MAX;
		if (found < *limit) {
			*limit = found;
			memcpy(ret_file, file, sizeof(file));
		}
		char *slash = strrchr(path, '/');
		if (!slash)
			return;
		*slash = 0;
	}
}

uint64_t limit_memory(const char *root, char ret_file[LIMIT_FILE])
{
	char line[512], file[LIMIT_FILE], mount[300];
	uint64_t limit = UINT64_MAX;
	ret_file[0] = 0;
	snprintf(file, sizeof(file), "%s/proc/self/cgroup", root);
	FILE *in = fopen(file, "re");
	while (in && fgets(line, sizeof(line), in)) { /* NUMBER:CONTROLLERS:PATH */
		char *words = strchr(line, ':'), *path = words ? strchr(words + 1, ':') : NULL;
		if (!path)
			continue;
		*path++ = 0;
		path[strcspn(path, "\n")] = 0;
		if (!strcmp(path, "/"))
			path[0] = 0;
		if (!words[1]) {
			snprintf(mount, sizeof(mount), "%s/sys/fs/cgroup", root);
			limit_climb(mount, "memory.max", path, &limit, ret_file);
		} else if (!strcmp(words + 1, "memory")) {
			snprintf(mount, sizeof(mount), "%s/sys/fs/cgroup/memory", root);
			limit_climb(mount, "memory.limit_in_bytes", path, &limit, ret_file);
		}
	}
	if (in)
		fclose(in);
	return limit;
}
