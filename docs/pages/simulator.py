"""The control calls of the simulated Telegram, from their classes and from what its methods say of themselves."""

import msgspec

from docs.pages.markdown import code, table
from peik.testing.control import CALLS, Order
from peik.testing.telegram import Telegram


def simulator_parts() -> list[str]:
    rows = [(code(f"{verb} /sim/{name}"), _takes(form), _means(name, form)) for (verb, name), form in CALLS.items()]
    return [
        (
            "How a test in any language drives [the simulated Telegram](../simulator.md#control-calls). JSON in, "
            '`{"ok": true, "result": …}` out; a mistake is a 4xx with a `description` of what to do. A bot is its id or token, a '
            "chat its id or @name, a user an id, a file `base64, filename, content_type`; `?` may be left out. In Python "
            "`telegram` has methods of the same names, with the same arguments."
        ),
        table(("call", "takes", "what it does, and gives"), rows),
    ]


def _takes(form: type[Order]) -> str:
    if form.is_open:
        return "an object"
    return ", ".join(code(f"{one.encode_name}{'' if one.required else '?'}") for one in msgspec.structs.fields(form))


def _means(name: str, form: type[Order]) -> str:
    own = form.__dict__.get("__doc__") or getattr(getattr(Telegram, name, None), "__doc__", None) or ""
    return " ".join(own.split())
