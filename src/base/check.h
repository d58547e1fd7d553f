/* SPDX-License-Identifier: Apache-2.0 */
/* Asserts that stay on: our own mistakes crash at once; foreign bytes never reach one. */
#ifndef CAIRN_BASE_CHECK_H
#define CAIRN_BASE_CHECK_H

__attribute__((noreturn, cold)) void check_failed(const char *what, const char *file, int line);

#define check(condition) ((condition) ? (void)0 : check_failed(#condition, __FILE__, __LINE__))

#endif
