/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of an extent: one sealed memfd, mapped where huge pages can be.
 * Threads: any. Memory: what it maps, which the caller unmaps. Invariant: nobody can shrink or grow it any more, nor
 * map it writably once more.
 */
#include "tier/extent.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/err.h"
#include "cairn/cairn.h"

#define EXTENT_PAGE 4096u
#define HUGE_PAGE (2u << 20)
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* On a boundary of huge pages, which the kernel does not see to where it makes none by itself. */
static void *extent_map(int fd, uint64_t bytes)
{
	uint8_t *room = mmap(NULL, bytes + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (room == MAP_FAILED)
		return MAP_FAILED;
	uint64_t before = -(uintptr_t)room % HUGE_PAGE;
	void *base = mmap(room + before, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
	if (base == MAP_FAILED) {
		int errnum = errno;
		munmap(room, bytes + HUGE_PAGE);
		errno = errnum;
		return MAP_FAILED;
	}
	if (before)
		munmap(room, before);
	munmap(room + before + bytes, HUGE_PAGE - before);
	return base;
}

int extent_make(uint64_t bytes, int *ret_fd, uint8_t **ret_base)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
	int fd = memfd_create("cairn-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0) {
		err_set(CAIRN_E_NOMEM, "memory tier: memfd_create: %s", strerror(errno));
		return CAIRN_E_NOMEM;
	}
	if (ftruncate(fd, (off_t)bytes))
		goto failed;
	void *base = extent_map(fd, bytes);
	if (base == MAP_FAILED)
		goto failed;
	/* Before the pages are touched; a kernel that has no huge pages for it refuses, and that is all right. */
	(void)madvise(base, bytes, MADV_HUGEPAGE);
	if (fcntl(fd, F_ADD_SEALS, seals)) {
		int errnum = errno;
		munmap(base, bytes);
		errno = errnum;
		goto failed;
	}
	*ret_fd = fd;
	*ret_base = base;
	return 0;
failed:
	err_set(CAIRN_E_NOMEM, "memory tier: an extent of %llu bytes: %s", (unsigned long long)bytes, strerror(errno));
	close(fd);
	return CAIRN_E_NOMEM;
}

int extent_touch(uint8_t *base, uint64_t bytes)
{
	/* Huge pages where the system gives none by itself to a memfd (the default): one small page in the place of each,
	 * to be collapsed into it. A device moves twice as many bytes a second into them, and it takes less time than to
	 * touch all small ones. Linux 6.1; older kernels refuse, and so does memory in
	 * which there is no room for one: not asked again, since the search for it takes long. */
	for (uint64_t at = 0, refused = 0; at + HUGE_PAGE <= bytes && !refused; at += HUGE_PAGE) {
		if (madvise(base + at, EXTENT_PAGE, MADV_POPULATE_WRITE))
			break;
		refused = madvise(base + at, HUGE_PAGE, MADV_COLLAPSE) && errno != EAGAIN && errno != EBUSY;
	}
	if (!madvise(base, bytes, MADV_POPULATE_WRITE))
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return err_set(CAIRN_E_NOMEM, "memory tier: %llu bytes are not to be had: %s", (unsigned long long)bytes,
		               strerror(errno));
	for (uint64_t at = 0; at < bytes; at += EXTENT_PAGE) /* before Linux 5.14 */
		*(volatile uint8_t *)(base + at) = 0;
	return 0;
}
