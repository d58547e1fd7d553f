/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the golden files of the formats' version 1 into a directory: make_golden [DIRECTORY].
 * A golden file that exists is never written over: a format that was released is read for ever, so where the bytes of
 * today's code differ, it is the code that is wrong, or a new version that needs new files.
 */
#include "golden/samples.h"

static int make(const char *directory, const struct sample_file *sample)
{
	static uint8_t bytes[SAMPLE_FILE_MAX];
	char path[1024];
	size_t length;
	FILE *file;

	memset(bytes, 0xee, sizeof bytes); /* what encode does not write shows */
	length = sample->make(bytes);
	snprintf(path, sizeof path, "%s/%s", directory, sample->name);
	file = fopen(path, "wbx");
	if (!file) {
		perror(path);
		return 1;
	}
	if (fwrite(bytes, 1, length, file) != length || fclose(file)) {
		perror(path);
		return 1;
	}
	printf("%s: %zu bytes\n", path, length);
	return 0;
}

int main(int argc, char **argv)
{
	int failed = 0;

	for (size_t i = 0; i < sizeof sample_files / sizeof sample_files[0]; i++)
		failed |= make(argc > 1 ? argv[1] : CAIRN_GOLDEN_DIR, &sample_files[i]);
	return failed;
}
