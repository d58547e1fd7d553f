/* SPDX-License-Identifier: Apache-2.0 */
int every_io(int verbose) { return verbose < 0; }
int every_crash(int verbose) { return verbose < 0; }
