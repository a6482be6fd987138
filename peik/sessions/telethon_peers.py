"""What opens a chat for an account: kept as a few bytes, and read again."""

import struct
from typing import Any

from telethon import types

from peik.sessions.client import ClientError, Trouble

_ACCESS = struct.Struct("<cqq")


def kind_of(dialog: Any) -> str:
    if dialog.is_user:
        return "private"
    if not dialog.is_channel:
        return "group"
    return "supergroup" if dialog.is_group else "channel"


def access_to(peer: Any) -> bytes:
    match peer:
        case types.InputPeerUser():
            return _ACCESS.pack(b"U", peer.user_id, peer.access_hash)
        case types.InputPeerChannel():
            return _ACCESS.pack(b"C", peer.channel_id, peer.access_hash)
        case types.InputPeerChat():
            return _ACCESS.pack(b"G", peer.chat_id, 0)
    return _ACCESS.pack(b"S", 0, 0)  # saved messages


def peer_behind(access: bytes) -> Any:
    try:
        kind, number, access_hash = _ACCESS.unpack(access)
    except struct.error:
        raise ClientError(Trouble.REFUSED, "What is kept to open this chat cannot be read.") from None
    match kind:
        case b"U":
            return types.InputPeerUser(number, access_hash)
        case b"C":
            return types.InputPeerChannel(number, access_hash)
        case b"G":
            return types.InputPeerChat(number)
    return types.InputPeerSelf()
