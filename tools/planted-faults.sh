#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# planted-faults.sh [--list] [--only NAME]... [--jobs N] [--work DIR] [--all-tests] [--minutes N] [--verbose]
#
# Shows that the tests find what they are for: plants each small fault of tests/faults/ in a copy of the tree, builds it,
# and runs the tests that should fail. One line a fault; ends with 1 where a fault is not found.
# tests/faults/README.md says how to add one.
set -euo pipefail
exec python3 -B "$(dirname "${BASH_SOURCE[0]}")/planted_faults.py" "$@"
