#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check-python.sh PYTHON - house rules of python/: SPDX lines, ruff (style, unused names), mypy (types). PYTHON: none, or that of
# tools/setup-python.sh; without the two it is skipped (77).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bin=$(dirname "$1")
if [[ ! -x $bin/ruff || ! -x $bin/mypy ]]; then
    echo "skipped: no ruff and mypy (tools/setup-python.sh gets them)"
    exit 77
fi
missing=$(git ls-files -co --exclude-standard 'python/*.py' | xargs grep -L 'SPDX-License-Identifier: Apache-2.0' || true)
if [[ -n $missing ]]; then
    printf '%s:1: the first line must say SPDX-License-Identifier: Apache-2.0\n' $missing
    exit 1
fi
"$bin/ruff" check --no-cache --quiet --output-format concise python
cache=$(mktemp -d)
trap 'rm -rf "$cache"' EXIT
(cd python && "$bin/mypy" --config-file ../pyproject.toml --cache-dir "$cache" --no-error-summary cairnkv ./*.py)
