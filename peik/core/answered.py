"""The call that a bot may put into its answer to a pushed update, as at Telegram. Reading only.

See docs/telegram.md, Methods in webhook answers.
"""

import re
import urllib.parse

import msgspec

from peik.core.methods import is_method_name
from peik.core.problem import BadInput

# What a bot may not ask for this way: its own inbox, and what answers with something that nobody would read.
_NEVER = frozenset({"setwebhook", "deletewebhook", "close", "logout"})
_FIELD = re.compile(rb'[;\s]name="([^"\r\n]{1,128})"')
_FILE = re.compile(rb"[;\s]filename\*?=")

_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode


def read_answer(body: bytes) -> tuple[str, bytes] | None:
    """The method and its parameters as a JSON object; None if nothing is asked for. Raises BadInput if it is no call."""
    start = body.lstrip()[:1]
    if start == b"{":
        return _from_json(body)
    if body.startswith(b"--"):
        return _checked(_from_form(body))
    if b"method=" in body:
        return _checked(_from_query(body))
    return None


def _from_json(body: bytes) -> tuple[str, bytes] | None:
    try:
        fields = _decode_object(body)
        raw = fields.pop("method", None)
        method = None if raw is None else _decode_text(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise _bad("it is not a JSON object with the name of a method") from None
    return None if method is None else (_allowed(method), msgspec.json.encode(fields))


def _from_query(body: bytes) -> dict[str, str]:
    try:
        return dict(urllib.parse.parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=256))
    except ValueError:
        raise _bad("it is not a form") from None


def _from_form(body: bytes) -> dict[str, str]:
    """multipart/form-data, whose first line is its boundary: what aiogram answers."""
    boundary = body.split(b"\r\n", 1)[0]
    fields: dict[str, str] = {}
    for part in body.split(boundary)[1:-1]:
        head, _, value = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        if _FILE.search(head):
            raise _bad("it carries a file; send files as letters of their own")
        name = _FIELD.search(head)
        if name is None:
            raise _bad("it is not a form")
        try:
            fields[name[1].decode()] = value.removesuffix(b"\r\n").decode()
        except UnicodeDecodeError:
            raise _bad("it is not text") from None
    return fields


def _checked(fields: dict[str, str]) -> tuple[str, bytes] | None:
    method = fields.pop("method", None)
    return None if method is None else (_allowed(method), msgspec.json.encode(fields))


def _allowed(method: str) -> str:
    lowered = method.lower()
    if not is_method_name(method) or lowered in _NEVER or lowered.startswith("get"):
        raise _bad(f"{method[:64]!r} is not called by an answer")
    return method


def _bad(why: str) -> BadInput:
    return BadInput(code="bad_answer", detail=f"The answer to the push cannot be a call: {why}.")
