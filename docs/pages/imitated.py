"""What the simulated Telegram imitates and what it does not: every method and field of the Bot API, as aiogram knows them."""

import ast
import inspect
import itertools
from collections import Counter

import aiogram
import aiogram.methods
import aiogram.types
import msgspec
from aiogram.methods import TelegramMethod
from pydantic import BaseModel

from docs.pages.markdown import REFERENCE, ROOT, code, table
from peik.testing.methods import METHODS, NOT_IMITATED
from proofs.suites import Seen, why

# Of what a bot is given or gives most: the rest of the types is parts of these, or of what is not imitated.
_TYPES = (
    "Update", "Message", "User", "ChatFullInfo", "Poll", "PollOption", "Sticker", "StickerSet", "PhotoSize", "Video",
    "Audio", "Document", "Animation", "Voice", "VideoNote", "Game", "Invoice", "SuccessfulPayment", "CallbackQuery",
    "ChatMemberUpdated", "ChatMemberAdministrator", "ChatMemberRestricted", "ChatInviteLink", "ChatJoinRequest",
    "ForumTopic", "WebhookInfo", "ReplyParameters", "LinkPreviewOptions", "MessageEntity", "InlineKeyboardButton",
    "InputPollOption", "InputSticker", "InputMediaPhoto", "InputMediaVideo", "BotCommand", "BusinessConnection",
)  # fmt: skip


def bot_api_methods() -> dict[str, type[TelegramMethod[object]]]:
    """Every method of the Bot API that aiogram knows, by its true name."""
    every = vars(aiogram.methods).values()
    found = [one for one in every if inspect.isclass(one) and issubclass(one, TelegramMethod)]
    return {str(one.__api_method__): one for one in found if isinstance(getattr(one, "__api_method__", None), str)}


def said() -> set[str]:
    """Every text that stands as such in the simulator's code: whatever is read or given by name is among them."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in sorted((ROOT / "peik/testing").glob("*.py"))]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    names = {node.target.id for node in nodes if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}
    return texts | names


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
            "Live suites that libraries' authors have written against Telegram itself, run against the simulator, straight and "
            "through the gateway. [`make suites`](../simulator.md#the-suites-of-the-libraries) runs them."
        ),
        table(("suite", "straight", "through the gateway", "skipped by its authors"), rows),
        "Each test that fails, and why it cannot pass here:",
        table(("suite", "tests", "why"), reasons),
    ]


def imitated_parts() -> list[str]:
    methods, known = bot_api_methods(), said()
    ruled = sorted(name for name in methods if name in METHODS and name not in NOT_IMITATED)
    rows = [(code(name), ", ".join(map(code, _unread(methods[name], known))) or "-") for name in ruled]
    less = [(code(name), NOT_IMITATED[name]) for name in sorted(methods.keys() & NOT_IMITATED.keys())]
    types = [(name, _unread(getattr(aiogram.types, name), known)) for name in _TYPES]
    return [
        (
            f"What `peik sim` does with each of the {len(methods)} methods of Bot API {aiogram.__api_version__}: "
            f"{len(ruled)} have rules of their own, {len(less)} have not. [The simulator](../simulator.md) says how to use it."
        ),
        "## Methods with rules of their own",
        (
            "A field that is not looked at is taken without a word and changes nothing. It is listed if its name stands nowhere "
            "in the simulator's code."
        ),
        table(("method", "fields that are not looked at"), rows),
        "## Methods without",
        "They are answered, so that a bot goes on, and stand in the ledger if they change something at Telegram.",
        table(("method", "what it does instead"), less),
        "## Fields of objects",
        "Of the objects that bots give and get most: the fields that the simulator neither reads nor gives.",
        table(("object", "fields"), [(code(name), ", ".join(map(code, found)) or "-") for name, found in types]),
        *_suites(),
        "## Not at all",
        (
            "Nothing is scaled, drawn or played: behind every size of a photo and every thumbnail lie the bytes of the whole, "
            "so that their sizes in bytes are not Telegram's. Only `SimServer` fetches files, and from this machine "
            "alone; what lies elsewhere the tester says (`telegram.web`). Bank cards in texts are not found. Where any chat may "
            "be made up, gifts and stories may be as well, and nobody runs out of Stars. Nobody but the tester's people writes, "
            "votes, joins or pays."
        ),
    ]
