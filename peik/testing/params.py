"""Reading parameters as the Bot API does: a number may come as text, an object as JSON inside a form field.

See docs/telegram.md, Requests and responses.
"""

import msgspec

from peik.testing.answer import bad

Params = dict[str, object]
Json = dict[str, object]


def text_of(params: Params, name: str) -> str:
    """The parameter as text; "" when absent."""
    value = params.get(name)
    if type(value) is str:
        return value
    if value is None:
        return ""
    return msgspec.json.encode(value).decode()


def integer(params: Params, name: str, default: int = 0) -> int:
    """The parameter as a number. What is no number counts as absent, as at Telegram."""
    value = params.get(name)
    if type(value) is int:
        return value
    if isinstance(value, float):
        return int(value)
    if isinstance(value, str):
        try:
            return int(value.strip())
        except ValueError:
            return default
    return default


def number(params: Params, name: str) -> float | None:
    value = params.get(name)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return None
    return None


def flag(params: Params, name: str) -> bool:
    """True for true, yes and 1."""
    value = params.get(name)
    if isinstance(value, str):
        return value.strip().lower() in {"true", "yes", "1"}
    return value is True or value == 1


def structure(params: Params, name: str, *, what: str) -> object:
    """An object or array, given as such or as JSON text; None when absent. `what` names it in the refusal."""
    value = params.get(name)
    if not isinstance(value, str):
        return value
    if not value.strip():
        return None
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError:
        raise bad(f"can't parse {what} JSON object") from None


def mapping(params: Params, name: str, *, what: str) -> Json | None:
    found = structure(params, name, what=what)
    if found is None:
        return None
    if not isinstance(found, dict):
        raise bad(f"can't parse {what} JSON object")
    return found


def sequence(params: Params, name: str, *, what: str) -> list[object] | None:
    found = structure(params, name, what=what)
    if found is None:
        return None
    if not isinstance(found, list):
        raise bad(f"expected an Array of {what}")
    return found


def integers(params: Params, name: str, *, what: str) -> list[int]:
    """A list of ids; refuses anything else in it."""
    found = sequence(params, name, what=what) or []
    try:
        return [int(item) for item in found if isinstance(item, (int, str))]
    except ValueError:
        raise bad(f"can't parse {what} JSON object") from None
