"""A Bot API file id, read: it holds where the file lies at Telegram, which is all that MTProto needs to fetch it."""

import base64
import binascii
import struct

import msgspec

_HAS_REFERENCE = 1 << 25
_IS_WEB = 1 << 24
_VERSION = 4


class FileAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where a file lies. Good only for the bot that the file id was given to, as the file id itself."""

    id: int
    access_hash: int
    reference: bytes
    dc_id: int


NOWHERE = FileAddress(id=0, access_hash=0, reference=b"", dc_id=0)


def read_file_id(text: str) -> FileAddress:
    """The address in a file id. One of another form gives NOWHERE: the message is whole, the file cannot be fetched."""
    try:
        data = _zeros_back(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        if not data or data[-1] != _VERSION:
            return NOWHERE
        kind, dc_id = struct.unpack_from("<ii", data)
        if kind & _IS_WEB:
            return NOWHERE
        reference, place = _bytes_at(data, 8) if kind & _HAS_REFERENCE else (b"", 8)
        media_id, access_hash = struct.unpack_from("<qq", data, place)
    except (binascii.Error, ValueError, struct.error, IndexError):
        return NOWHERE
    return FileAddress(id=media_id, access_hash=access_hash, reference=reference, dc_id=dc_id)


def _zeros_back(data: bytes) -> bytes:
    """Runs of zero bytes are written as one zero and their number."""
    found = bytearray()
    place = 0
    while place < len(data):
        if data[place] == 0:
            found += bytes(data[place + 1])
            place += 2
        else:
            found.append(data[place])
            place += 1
    return bytes(found)


def _bytes_at(data: bytes, place: int) -> tuple[bytes, int]:
    """A TL byte string: its length in one byte, or in three after 254; padded to a multiple of four."""
    length, begin = data[place], place + 1
    if length == 254:
        length, begin = int.from_bytes(data[place + 1 : place + 4], "little"), place + 4
    end = begin + length
    return data[begin:end], end + (place - end) % 4
