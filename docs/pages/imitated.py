"""What the simulated Telegram imitates and what it does not: every method and field of the Bot API, as aiogram knows them."""

import ast
import functools
import inspect
import itertools
import re
from collections import Counter
from collections.abc import Callable

import aiogram
import aiogram.methods
import aiogram.types
import msgspec
from aiogram.methods import TelegramMethod
from aiogram.types import TelegramObject
from pydantic import BaseModel

from docs.pages.markdown import REFERENCE, ROOT, code, table
from peik.testing.methods import METHODS, NOT_IMITATED
from proofs.suites import Seen, why

# What Telegram says of things that the simulator has not: of its own trouble, and of accounts, peers and files beyond it. It is
# said on request: by the fault `error`. The rest of Peik's catalogue the simulator says by itself, and a test demands that.
ON_REQUEST = (
    (400, "Bad Request: PEER_ID_INVALID"),
    (400, "Bad Request: INPUT_USER_DEACTIVATED"),
    (400, "Bad Request: have no write access to the chat"),
    (400, "Bad Request: CHAT_WRITE_FORBIDDEN"),
    (400, "Bad Request: CHAT_RESTRICTED"),
    (400, "Bad Request: ALLOW_PAYMENT_REQUIRED_5"),
    (400, "Bad Request: FROZEN_METHOD_INVALID"),
    (400, "Bad Request: TOPIC_DELETED"),
    (400, "Bad Request: REPLY_MESSAGE_ID_INVALID"),
    (400, "Bad Request: REPLY_MARKUP_INVALID"),
    (400, "Bad Request: wrong file_id or the file is temporarily unavailable"),
    (400, "Bad Request: wrong remote file identifier specified: Wrong string length"),
    (400, "Bad Request: can't upload file by URL"),
    (400, "Bad Request: photo has unsupported extension. Use one of .jpg, .jpeg, .gif, .png, .tif or .bmp"),
    (400, "Bad Request: Group send failed"),
    (400, "Bad Request: Bad Gateway"),
    (400, "Bad Request: SHORTNAME_OCCUPY_FAILED"),
    (421, "Misdirected Request: unallowed token specified"),
    (500, "Internal Server Error: sent message was immediately deleted and can't be returned"),
    (500, "Internal Server Error: restart"),
    (502, "Bad Gateway"),
    (503, "Service Unavailable"),
    (504, "Gateway Timeout"),
)


def bot_api_methods() -> dict[str, type[TelegramMethod[object]]]:
    """Every method of the Bot API that aiogram knows, by its true name."""
    every = vars(aiogram.methods).values()
    found = [one for one in every if inspect.isclass(one) and issubclass(one, TelegramMethod)]
    return {str(one.__api_method__): one for one in found if isinstance(getattr(one, "__api_method__", None), str)}


@functools.cache
def _trees() -> dict[str, ast.Module]:
    """The simulator's modules, by their names."""
    paths = sorted((ROOT / "peik/testing").glob("*.py"))
    return {f"peik.testing.{path.stem}": ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def _texts(node: ast.AST) -> set[str]:
    return {one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)}


# Objects, by how their names begin, that are kept and given back as a bot said them.
_PASSED_ON = re.compile(
    r"BotCommand|LinkPreviewOptions|StoryArea|MaskPosition|InlineQueryResultsButton|PassportElementError|KeyboardButtonRequest"
)


def bot_api_types() -> dict[str, type[BaseModel]]:
    """Every object of the Bot API that aiogram knows, by its name."""
    every = {name: getattr(aiogram.types, name) for name in aiogram.types.__all__}
    found = {
        name: one
        for name, one in every.items()
        if inspect.isclass(one) and issubclass(one, TelegramObject) and name != "ErrorEvent"
    }
    return {name: one for name, one in sorted(found.items()) if one.model_fields}


def said() -> set[str]:
    """Every text that stands as such in the simulator's code: whatever is read or given by name is among them."""
    nodes = [node for tree in _trees().values() for node in ast.walk(tree)]
    names = {node.target.id for node in nodes if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}
    return names.union(*map(_texts, _trees().values()))


@functools.cache
def _things(module: str) -> dict[str, list[ast.AST]]:
    """What stands in a module, by name: functions, values, and methods of its classes."""
    found: dict[str, list[ast.AST]] = {}
    for node in _trees()[module].body:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        for one in inner:
            targets = (
                one.targets if isinstance(one, ast.Assign) else [one.target] if isinstance(one, ast.AnnAssign) else []
            )
            names = [target.id for target in targets if isinstance(target, ast.Name)]
            if isinstance(one, ast.FunctionDef):
                names.append(one.name)
            for name in names:
                found.setdefault(name, []).append(one)
    return found


@functools.cache
def _origins(module: str) -> dict[str, tuple[str, str]]:
    """Where a module has its imported names from."""
    nodes = [node for node in _trees()[module].body if isinstance(node, ast.ImportFrom)]
    return {one.name: (str(node.module), one.name) for node in nodes for one in node.names}


@functools.cache
def _rows() -> dict[str, list[ast.AST]]:
    """What stands beside each name in the tables: for a method, the field that a general function is made for."""
    found: dict[str, list[ast.AST]] = {}
    for node in itertools.chain.from_iterable(map(ast.walk, _trees().values())):
        for key, value in zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ():
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                found.setdefault(key.value, []).append(value)
    return found


@functools.cache
def _part(module: str, thing: str) -> tuple[set[str], set[tuple[str, str]]]:
    """The texts in one thing of a module, and what else it names."""
    texts, named = set[str](), set[tuple[str, str]]()
    for node in itertools.chain.from_iterable(map(ast.walk, _things(module).get(thing, []))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts.add(node.value)
        elif isinstance(node, ast.Name):
            named.add(_origins(module).get(node.id, (module, node.id)))
        elif isinstance(node, ast.Attribute):
            # Of a module that was imported whole, or of the world, whose methods carry out much.
            whole = f"peik.testing.{node.value.id}" if isinstance(node.value, ast.Name) else ""
            named.add((whole if whole in _trees() else "peik.testing.world", node.attr))
    return texts, named


def read_by(name: str, handler: Callable[..., object]) -> set[str]:
    """Every text in the code that carries a method out: its function, and what that calls, as far as names tell."""
    waiting = [(handler.__module__, handler.__qualname__.partition(".")[0])]
    seen = set(waiting)
    read = {text for row in _rows().get(name, []) for text in _texts(row)}
    while waiting:
        texts, named = _part(*waiting.pop())
        read |= texts
        fresh = {one for one in named - seen if one[0] in _trees()}
        seen |= fresh
        waiting += fresh
    return read


def _unread(model: type[BaseModel], known: set[str]) -> list[str]:
    names = (field.alias or name for name, field in model.model_fields.items())
    return sorted(name for name in names if name not in known and not name.startswith("_"))


def suites_seen() -> list[Seen]:
    """What the last `make suites` with `--write` saw."""
    return msgspec.json.decode((REFERENCE / "suites.json").read_bytes(), type=list[Seen])


def _suites() -> list[str]:
    rows = []
    reasons = []
    for name, group in itertools.groupby(suites_seen(), key=lambda row: row.suite):
        routes = {row.route: row for row in group}
        first = routes["straight"]
        figures = [f"{one.passed} of {one.of}" for one in (first, routes["gateway"])]
        rows.append((f"{name} ({first.version})" if first.version else name, *figures, str(first.skipped)))
        counted = Counter(why(name, test) for test in first.failed)
        reasons += [(name, str(count), reason) for reason, count in counted.items()]
    return [
        "## What the suites of bot libraries say",
        (
            "Suites that libraries' authors have written against Telegram itself "
            "([`make suites`](../simulator.md#the-suites-of-the-libraries))."
        ),
        table(("suite", "straight", "through the gateway", "skipped by its authors"), rows),
        "Each test that fails, and why it cannot pass here:",
        table(("suite", "tests", "why"), reasons),
    ]


def _methods_without(rows: list[tuple[str, str]]) -> list[str]:
    if not rows:
        return []
    return [
        "## Methods without",
        "They are answered, so that a bot goes on, and stand in the ledger if they change something at Telegram.",
        table(("method", "what it does instead"), rows),
    ]


def imitated_parts() -> list[str]:
    methods, known = bot_api_methods(), said()
    ruled = sorted(name for name in methods if name in METHODS and name not in NOT_IMITATED)
    unread = {name: _unread(methods[name], read_by(name, METHODS[name])) for name in ruled}
    less = [(code(name), NOT_IMITATED[name]) for name in sorted(methods.keys() & NOT_IMITATED.keys())]
    types = {name: _unread(one, known) for name, one in bot_api_types().items()}
    partly = [
        (code(name), ", ".join(map(code, found)))
        for name, found in types.items()
        if found and not _PASSED_ON.match(name)
    ]
    return [
        (
            f"What `peik sim` does with each of the {len(methods)} methods of Bot API {aiogram.__api_version__}: "
            f"{len(ruled)} have rules of their own{f', {len(less)} have not' if less else ''}. "
            "[The simulator](../simulator.md) says how to use it."
        ),
        "## Methods with rules of their own",
        (
            "A field that is not looked at is accepted silently and changes nothing. It is listed if its name stands nowhere "
            "in the code that carries the method out."
        ),
        table(
            ("method", "fields that are not looked at"),
            [(code(name), ", ".join(map(code, found))) for name, found in unread.items() if found],
        ),
        f"All fields are looked at of {', '.join(code(name) for name, found in unread.items() if not found)}.",
        *_methods_without(less),
        "## Fields of objects",
        (
            f"Of the {len(types)} objects of the Bot API {len(types) - len(partly)} are known in whole. Of the others the "
            "simulator neither reads nor gives these fields by itself; a tester can put them into any message or update "
            "(`content=`, `update`)."
        ),
        table(("object", "fields"), partly),
        "## Errors",
        (
            "The simulator refuses in Telegram's words, all of those in [Peik's catalogue](errors.md). Only the following are "
            "said on request alone: by the fault `error` with `status` and `words`."
        ),
        table(("status", "words"), [(str(status), code(words)) for status, words in ON_REQUEST]),
        *_suites(),
        "## Not at all",
        (
            "Nothing is scaled, drawn or played: every size of a photo and every thumbnail has the bytes of the whole. Only "
            "`SimServer` fetches files, and from this machine alone; what lies elsewhere the tester says (`telegram.web`). Bank "
            "cards in texts are not found, nor links in rich messages. Where any chat may be made up, gifts and stories may be "
            "as well, and nobody runs out of Stars. Nobody but the tester's people writes, votes, joins or pays."
        ),
    ]
