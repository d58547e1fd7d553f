/* SPDX-License-Identifier: Apache-2.0 */
/* A store's directory: its owner's lock and its identity file. In a simulation there is no directory, only the file. */
#ifndef CAIRN_STORE_DIRECTORY_H
#define CAIRN_STORE_DIRECTORY_H

#include "fmt/ident.h"
#include "io/io.h"

/* Opens (CAIRN_OPEN_CREATE: makes) the directory, takes its lock, reads the identity. ret_fresh 1: there is none yet.
 * Errors: NOENT, NOTSTORE, OWNED, VERSION, CORRUPT, ACCESS, RDONLY, IO, NOMEM. */
int directory_open(const char *path, const struct io_maker *maker, uint32_t flags, int *ret_dir_fd, int *ret_lock_fd,
                   struct fmt_ident *ret_ident, int *ret_fresh);
/* Writes the identity so that a crash leaves the old or the new one. */
int directory_write_ident(const char *path, const struct io_maker *maker, int dir_fd, const struct fmt_ident *ident,
                          int fresh);
/* What left, and why (fmt/gone.h): remembered from clean close to open. Whatever fails, nothing is remembered. */
struct catalog;
void directory_load_gone(const char *path, const struct io_maker *maker, struct catalog *catalog);
void directory_save_gone(const char *path, const struct io_maker *maker, int dir_fd, uint32_t version,
                         const struct catalog *catalog);
void directory_close(int dir_fd, int lock_fd);

/* The place of the cairnd that has the directory, "unix:PATH", as it told last in the file `daemon`. 0, or -1: none. */
int directory_daemon(const char *path, char *ret_place, size_t max);

#endif
