# SPDX-License-Identifier: Apache-2.0
# The extension: what cffi makes of cairn.h.
from typing import Any

ffi: Any
lib: Any
