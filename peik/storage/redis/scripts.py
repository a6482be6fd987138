"""The Lua scripts of the Redis store, put together from files of one idea each."""

import hashlib
import re
from collections.abc import Iterable
from functools import cache
from importlib.resources import files

import msgspec

# A script is read by the server at every call, so that most calls should not bring what they do not need (measured: 65 µs
# for all of it). The first that knows all operations of a commit is taken.
_ACCEPT = ("prelude", "moving", "lease", "accept", "advance", "commit_end")
_NODES = ("prelude", "moving", "lease", "nodes", "commit_end")
_INTAKE = ("prelude", "moving", "arrivals", "spans", "consumers", "intake", "commit_end")
_COMMIT = (
    "prelude", "moving", "lease", "nodes", "accept", "advance", "time", "people", "remember",
    "arrivals", "spans", "consumers", "intake", "replay", "sweeping", "commit_end",
)  # fmt: skip
# So seldom asked for that no other commit is to bring it along.
_FORGETTING = (*_COMMIT[:-1], "forgetting", "commit_end")
_READ_LETTERS = ("prelude", "reading", "read_end")
_READ_NODES = ("prelude", "nodes_reading", "read_end")
_READ = ("prelude", "reading", "nodes_reading", "arrivals", "inbox_reading", "read_end")

_OPERATION = re.compile(r"^function ops\.(\w+)", re.MULTILINE)


class Script(msgspec.Struct, frozen=True):
    text: str
    digest: str
    operations: frozenset[str]


@cache
def commit_script(operations: frozenset[str]) -> Script:
    return _fitting((_ACCEPT, _INTAKE, _NODES, _COMMIT, _FORGETTING), operations)


def read_script(operations: Iterable[str]) -> Script:
    return _fitting((_READ_LETTERS, _READ_NODES, _READ), operations)


def keep_part_script() -> Script:
    return _script(("prelude", "keep_part"))


def _fitting(scripts: tuple[tuple[str, ...], ...], operations: Iterable[str]) -> Script:
    wanted = frozenset(operations)
    for names in scripts:
        script = _script(names)
        if wanted <= script.operations:
            return script
    raise AssertionError(wanted)


@cache
def _script(names: tuple[str, ...]) -> Script:
    folder = files("peik.storage.redis") / "lua"
    text = "\n".join((folder / f"{name}.lua").read_text(encoding="utf-8") for name in names)
    digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
    return Script(text, digest, frozenset(_OPERATION.findall(text)))
