"""Parameters and files out of a request: query string, form, JSON or multipart, whichever a library sends.

See docs/telegram.md, Requests and responses.
"""

from urllib.parse import parse_qsl

import msgspec
from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser, parse_options_header

from peik.testing.answer import UploadedFile
from peik.testing.options import MIB
from peik.testing.params import Params

PARAMS_BYTES_MAX = MIB
FILES_MAX = 50

NO_FILES: dict[str, UploadedFile] = {}


class Unreadable(Exception):
    """A request that is refused below the API: a bare status, no body, and the connection closed."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def read(query: bytes, content_type: bytes, body: bytes) -> tuple[Params, dict[str, UploadedFile]]:
    """The parameters and files of a request. Raises Unreadable."""
    params: Params = {}
    if query:
        params.update(parse_qsl(query.decode("utf-8", "replace"), keep_blank_values=True))
    if not body:
        return params, NO_FILES
    kind = content_type.partition(b";")[0].strip().lower()
    if kind == b"multipart/form-data":
        return _multipart(params, content_type, body)
    if len(body) > PARAMS_BYTES_MAX:
        raise Unreadable(413)
    if kind == b"application/json":
        found = _json(body)
        return (found if not params else {**params, **found}), NO_FILES
    if kind == b"application/x-www-form-urlencoded":
        params.update(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
    return params, NO_FILES


def _json(body: bytes) -> Params:
    try:
        found = msgspec.json.decode(body)
    except msgspec.DecodeError:
        raise Unreadable(400) from None
    if not isinstance(found, dict):
        raise Unreadable(400)
    return found


class _Part:
    """One part while it is read."""

    def __init__(self) -> None:
        self.headers: dict[bytes, bytes] = {}
        self.field = bytearray()
        self.value = bytearray()
        self.data: list[bytes] = []


def _multipart(params: Params, content_type: bytes, body: bytes) -> tuple[Params, dict[str, UploadedFile]]:
    boundary = parse_options_header(content_type)[1].get(b"boundary")
    if not boundary:
        raise Unreadable(400)
    parts: list[_Part] = []

    def begin() -> None:
        parts.append(_Part())

    def header_field(data: bytes, start: int, end: int) -> None:
        parts[-1].field += data[start:end]

    def header_value(data: bytes, start: int, end: int) -> None:
        parts[-1].value += data[start:end]

    def header_end() -> None:
        part = parts[-1]
        part.headers[bytes(part.field).lower()] = bytes(part.value)
        part.field, part.value = bytearray(), bytearray()

    def part_data(data: bytes, start: int, end: int) -> None:
        parts[-1].data.append(data[start:end])

    parser = MultipartParser(
        boundary,
        {
            "on_part_begin": begin,
            "on_header_field": header_field,
            "on_header_value": header_value,
            "on_header_end": header_end,
            "on_part_data": part_data,
        },
    )
    try:
        parser.write(body)
        parser.finalize()
    except MultipartParseError:
        raise Unreadable(400) from None
    return _sorted_out(params, parts)


def _sorted_out(params: Params, parts: list[_Part]) -> tuple[Params, dict[str, UploadedFile]]:
    files: dict[str, UploadedFile] = {}
    params_bytes = 0
    for part in parts:
        options = parse_options_header(part.headers.get(b"content-disposition", b""))[1]
        name = options.get(b"name", b"").decode("utf-8", "replace")
        content = b"".join(part.data)
        if b"filename" in options or b"filename*" in options:
            filename = options.get(b"filename", b"file").decode("utf-8", "replace")
            kind = part.headers.get(b"content-type", b"application/octet-stream").decode("latin-1")
            files[name] = UploadedFile(filename=filename, content=content, content_type=kind)
        else:
            params_bytes += len(content)
            params[name] = content.decode("utf-8", "replace")
    if params_bytes > PARAMS_BYTES_MAX or len(files) > FILES_MAX:
        raise Unreadable(413)
    return params, files
