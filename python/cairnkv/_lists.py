# SPDX-License-Identifier: Apache-2.0
"""Calls that call back for each of many: they are gathered into a list, and an exception goes to the caller."""
from typing import Any, Callable, List, Optional, Type, TypeVar

from cairnkv._cairn import ffi, lib
from cairnkv._errors import check
from cairnkv._info import ClientInfo, PartInfo, Present, SessionInfo, SpaceInfo, TenantStat, TokenInfo, from_c

T = TypeVar("T")


class _Gather:
    def __init__(self, cls: Type[Any]) -> None:
        self.cls = cls
        self.found: List[Any] = []
        self.error: Optional[BaseException] = None


def _each(arg: Any, struct: Any) -> int:
    gather: _Gather = ffi.from_handle(arg)
    try:
        gather.found.append(from_c(gather.cls, struct))
        return 0
    except BaseException as error:  # raised again by gather()
        gather.error = error
        return 1


_CALLBACKS = {
    SessionInfo: "cairnkv_each_session",
    SpaceInfo: "cairnkv_each_space",
    PartInfo: "cairnkv_each_part",
    TenantStat: "cairnkv_each_tenant",
    ClientInfo: "cairnkv_each_client",
    Present: "cairnkv_each_present",
    TokenInfo: "cairnkv_each_token",
}
for _name in _CALLBACKS.values():
    ffi.def_extern(name=_name, error=1)(_each)


def gather(cls: Type[T], call: Callable[[Any, Any], int]) -> List[T]:
    """What call(each, arg) calls back for."""
    state = _Gather(cls)
    handle = ffi.new_handle(state)
    status = call(getattr(lib, _CALLBACKS[cls]), handle)
    if state.error:
        raise state.error
    check(status)
    return state.found
