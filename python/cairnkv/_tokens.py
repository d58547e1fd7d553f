# SPDX-License-Identifier: Apache-2.0
"""Tokens for a cairnd that listens on a network: they belong to a directory, whether its cairnd runs or not."""
import os
from typing import List, Optional, Union

from cairnkv._cairn import ffi, lib
from cairnkv._errors import check
from cairnkv._info import TokenInfo
from cairnkv._lists import gather
from cairnkv._types import c_text

Path = Union[str, "os.PathLike[str]"]


def token_new(directory: Path, *, tenant: Optional[str] = None, admin: bool = False, ttl_s: int = 0,
              certificate: Optional[Path] = None) -> str:
    """Makes a token; what is returned is the only copy of its secret. `certificate`: see struct cairn_token_desc."""
    desc = ffi.new("struct cairn_token_desc *")
    desc.size = ffi.sizeof("struct cairn_token_desc")
    alive = [c_text(tenant, "tenant"), c_text(None if certificate is None else os.fspath(certificate), "certificate")]
    desc.tenant, desc.certificate = alive
    desc.flags, desc.ttl_s = int(bool(admin)), ttl_s
    text = ffi.new("char[]", lib.CAIRN_TOKEN_TEXT)
    check(lib.cairn_token_new(c_text(os.fspath(directory), "directory"), desc, text))
    return bytes(ffi.string(text)).decode()


def token_list(directory: Path) -> List[TokenInfo]:
    place = c_text(os.fspath(directory), "directory")
    return gather(TokenInfo, lambda each, arg: int(lib.cairn_token_list(place, each, arg)))


def token_revoke(directory: Path, token_id: str) -> None:
    """From now on it is not taken."""
    check(lib.cairn_token_revoke(c_text(os.fspath(directory), "directory"), c_text(token_id, "token_id")))
