"""`make suites SUITES=folder`: the libraries' own live suites, written against Telegram, against the simulated one instead.

The folder holds the suites as their authors publish them, each in a folder of its own, with what they need installed as their
authors say (`npm install` there; for Python a virtual environment `.venv` there, or the packages in ours). Nothing of theirs is
changed: each runs in a copy, adapted by address, ids and tokens alone, and by its pace, which is made for Telegram's limits. Each
runs twice, straight and through the gateway. Prints a table, and with `--failures` what each failing test said. Ends with 1 if a
test fails that `WHY` does not know, or if the gateway loses one; with `--write` what was seen is kept for the docs.
"""

import argparse
import asyncio
import base64
import contextlib
import json
import os
import re
import shutil
import ssl
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import msgspec

from peik.testing import Options, SimServer, UploadedFile
from peik.testing.world import SimQuery
from tests.processes.programs import served
from tests.surroundings import scrubbed
from tests.web.certificates import Authority

CLOUD = "https://api.telegram.org"
TOKEN = "153667468:AAHlSHlMqSt1f-of-a-suite"
USER = 76918703
OTHER_BOT = 153667469
PROFILE = 675666224  # somebody with a channel of their own, whom python-telegram-bot's suite names
GROUP = -1_001_120_141_283
FORUM = -1_001_838_004_577
CHANNEL = -1_002_229_649_303
CHANNEL_NAME = "suitechannel"
STICKER_SET = "suite_by_suite_bot"
GAME = "suitegame"
PROVIDER = "284685063:TEST:NjQ0NjZlNzI5YjJi"
TIME_MAX_S = 1200.0


class Outcome(msgspec.Struct, frozen=True):
    """How one test ended; `said` is empty for one that passed, None for one that its authors skip."""

    name: str
    said: str | None


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What a run saw of one suite on one route, as docs/reference/suites.json keeps it."""

    suite: str
    version: str
    route: str
    passed: int
    of: int
    skipped: int
    failed: list[str]


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """Where a suite runs: the address it talks to, a copy of its source, and the ids of the files that it takes for granted."""

    url: str
    secure_url: str  # the same by TLS, for suites that insist on it for files
    source: Path
    work: Path
    files: dict[str, str]


class Suite(msgspec.Struct, frozen=True, kw_only=True):
    """One library's suite: by which file it is known, how it is adapted and started, and where its answers lie."""

    name: str
    known_by: tuple[str, str]  # a file, and what stands in it
    adapt: Callable[[Scene], None]
    command: Callable[[Scene], list[str]]
    environment: Callable[[Scene], dict[str, str]]
    read: Callable[[Scene, str], list[Outcome]]
    folder: str = "."  # where it is started
    takes_any_chat: bool = True  # it writes to chats and people that it has made up


def substitute(scene: Scene, pattern: str, changes: dict[str, str]) -> None:
    for path in scene.source.glob(pattern):
        text = path.read_text(encoding="utf-8")
        for old, new in changes.items():
            text = text.replace(old, new)
        path.write_text(text, encoding="utf-8")


# ---- reading what the runners write ----


def junit(scene: Scene, output: str) -> list[Outcome]:
    """The report of pytest and mocha, which differ in little."""
    report = scene.work / "report.xml"
    try:
        cases = ElementTree.fromstring(report.read_text(encoding="utf-8", errors="replace")).iter("testcase")
    except (FileNotFoundError, ElementTree.ParseError):
        return []  # it did not come to an end; what it printed says why
    found = []
    for case in cases:
        name = f"{case.get('classname') or ''} {case.get('name') or ''}".strip()
        trouble = next((one for tag in ("failure", "error") if (one := case.find(tag)) is not None), None)
        if case.find("skipped") is not None:
            found.append(Outcome(name, None))
        else:
            said = "" if trouble is None else (trouble.get("message") or "") + "\n" + (trouble.text or "")
            found.append(Outcome(name, said if trouble is None else said.strip() or "failed"))
    return found


def bun_report(scene: Scene, output: str) -> list[Outcome]:
    """What bun prints: the words of a failure stand before its name. At the end it repeats all that failed."""
    outcomes: list[Outcome] = []
    passage: list[str] = []
    for line in re.sub(r"\x1b\[[0-9;]*m", "", output).splitlines():
        if re.match(r"\d+ tests? failed:", line):
            break
        mark = re.match(r"\((pass|fail|skip)\) (.*?)(?: \[[\d.]+m?s\])?$", line)
        if mark is None:
            passage.append(line)
            continue
        words = {"pass": "", "skip": None}.get(mark[1], "\n".join(passage).strip() or "failed")
        outcomes.append(Outcome(mark[2], words))
        passage = []
    return outcomes


def go_report(scene: Scene, output: str) -> list[Outcome]:
    said: dict[str, list[str]] = {}
    outcomes = []
    for line in output.splitlines():
        if not line.startswith("{"):
            continue
        event = json.loads(line)
        name = event.get("Test", "")
        if event.get("Output"):
            said.setdefault(name, []).append(event["Output"])
        if not name or event.get("Action") not in {"pass", "fail", "skip"}:
            continue
        words = {"pass": "", "skip": None}.get(event["Action"], "".join(said.get(name, [])) or "failed")
        outcomes.append(Outcome(name, words))
    return outcomes


# ---- the suites ----


def python_of(scene: Scene) -> str:
    own = scene.source / ".venv" / "bin" / "python"
    return str(own) if own.exists() else os.environ.get("SUITES_PYTHON") or sys.executable


def pytest_command(*tests: str) -> Callable[[Scene], list[str]]:
    def command(scene: Scene) -> list[str]:
        flags = ["-q", "-p", "no:cacheprovider", "-p", "suite_address", "--tb=native", "-o", "addopts="]
        return [python_of(scene), "-m", "pytest", *tests, *flags, f"--junitxml={scene.work / 'report.xml'}"]

    return command


def telebot_address(scene: Scene) -> None:
    (scene.work / "suite_address.py").write_text(
        "from telebot import apihelper, asyncio_helper\n"
        "for one in (apihelper, asyncio_helper):\n"
        f"    one.API_URL = {scene.url + '/bot{0}/{1}'!r}\n    one.FILE_URL = {scene.url + '/file/bot{0}/{1}'!r}\n"
    )


def ptb_address(scene: Scene) -> None:
    # The default address of a bot, for those that name none; and no plugin that runs a red test thrice.
    (scene.work / "suite_address.py").write_text(
        "from telegram import Bot\nfrom telegram.ext import ExtBot\n"
        "def pytest_configure(config):\n    config.addinivalue_line('markers', 'flaky: runs again at Telegram')\n"
        "def here(value):\n"
        "    if not isinstance(value, str):\n        return value\n"
        f"    return value.replace({CLOUD + '/file'!r}, {scene.secure_url + '/file'!r}).replace({CLOUD!r}, {scene.url!r})\n"
        "for one in (Bot, ExtBot):\n"
        "    made = one.__init__\n"
        "    made.__defaults__ = tuple(map(here, made.__defaults__ or ()))\n"
        "    for name, value in (made.__kwdefaults__ or {}).items():\n"
        "        made.__kwdefaults__[name] = here(value)\n"
    )


def ptb_bots() -> str:
    bot = {
        "token": TOKEN,
        "payment_provider_token": PROVIDER,
        "chat_id": str(USER),
        "super_group_id": str(GROUP),
        "forum_group_id": str(FORUM),
        "channel_id": f"@{CHANNEL_NAME}",
        "subscription_channel_id": CHANNEL,
        "name": "Suite",
        "username": "@suite_bot",
    }
    return base64.b64encode(json.dumps([bot, bot]).encode()).decode()


SUITES = (
    Suite(
        name="pyTelegramBotAPI",
        known_by=("tests/test_telebot.py", "telebot"),
        adapt=telebot_address,
        command=pytest_command("test_telebot.py", "test_async_telebot.py"),
        folder="tests",
        environment=lambda scene: {"TOKEN": TOKEN, "CHAT_ID": str(USER), "GROUP_ID": str(GROUP)},
        read=junit,
    ),
    Suite(
        name="node-telegram-bot-api 0",
        known_by=("test/telegram.js", "TEST_TELEGRAM_TOKEN"),
        adapt=lambda scene: (
            substitute(scene, "src/telegram.js", {CLOUD: scene.url}),
            # A stream that it opens on purpose where no file is ends a newer Node, unless somebody listens.
            (scene.work / "alive.js").write_text("process.on('uncaughtException', () => {});\n"),
        )[0],
        command=lambda scene: [
            "node_modules/.bin/mocha",
            "--reporter=xunit",
            f"--reporter-options=output={scene.work / 'report.xml'}",
        ],
        environment=lambda scene: {
            "TEST_TELEGRAM_TOKEN": TOKEN,
            "TEST_PROVIDER_TOKEN": PROVIDER,
            "TEST_USER_ID": str(USER),
            "TEST_GROUP_ID": str(GROUP),
            "TEST_GAME_SHORT_NAME": GAME,
            "TEST_STICKER_SET_NAME": STICKER_SET,
            "NTBA_FIX_350": "1",
            "NODE_OPTIONS": f"--require={scene.work / 'alive.js'}",
        },
        read=junit,
    ),
    Suite(
        name="node-telegram-bot-api 2",
        known_by=("test/e2e/methods.test.ts", "NODE_TELEGRAM_TOKEN"),
        adapt=lambda scene: (
            substitute(scene, "src/core/transport.ts", {CLOUD: scene.url}),
            substitute(scene, "test/e2e/*.ts", {"global: 1 }": "global: 1000 }"}),
        )[0],
        command=lambda scene: [
            os.environ.get("SUITES_BUN") or "bun",
            "test",
            "./test/e2e",
            "--timeout=60000",
        ],
        environment=lambda scene: {
            "NODE_TELEGRAM_TOKEN": TOKEN,
            "TEST_GROUP_ID": str(FORUM),
            "TEST_USER_ID": str(USER),
        },
        read=bun_report,
    ),
    Suite(
        name="python-telegram-bot",
        known_by=("tests/auxil/ci_bots.py", "telegram"),
        adapt=ptb_address,
        command=pytest_command("tests", "-m", "req", "-p", "no:flaky", "-p", "no:randomly"),
        takes_any_chat=False,
        environment=lambda scene: {
            "GITHUB_ACTIONS": "true",
            "TEST_WITH_OPT_DEPS": "true",
            "BOTS": ptb_bots(),
            "JOB_INDEX": "1",
            "SSL_CERT_FILE": str(scene.work / "authority.pem"),
        },
        read=junit,
    ),
    Suite(
        name="go-telegram-bot-api",
        known_by=("go.mod", "go-telegram-bot-api"),
        adapt=lambda scene: (
            substitute(scene, "configs.go", {f'"{CLOUD}/bot': f'"{scene.url}/bot'}),
            go_ids(scene),
        )[0],
        command=lambda scene: [
            os.environ.get("SUITES_GO") or "go",
            "test",
            "-json",
            "-count=1",
            "-vet=off",
            "-run",
            "Test",
            ".",
        ],
        environment=lambda scene: {"GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local"},
        read=go_report,
    ),
    Suite(
        name="tucnak/telebot",
        known_by=("go.mod", "gopkg.in/telebot"),
        adapt=lambda scene: substitute(scene, "telebot.go", {CLOUD: scene.url}),
        command=lambda scene: [os.environ.get("SUITES_GO") or "go", "test", "-json", "-count=1", "-vet=off", "."],
        environment=lambda scene: {
            "GOFLAGS": "-mod=mod",
            "GOTOOLCHAIN": "local",
            "TELEBOT_SECRET": TOKEN,
            "CHAT_ID": str(GROUP),
            "USER_ID": str(USER),
            "CHANNEL_ID": str(CHANNEL),
        },
        read=go_report,
    ),
)


# Why a test of theirs cannot pass here: its suite, what its name has in it, and the reason. A test demands that each is needed.
WHY = (
    (
        "node-telegram-bot-api 0",
        "Uncaught error outside test suite",
        "a stream that the suite opens from nowhere, which a newer Node reports",
    ),
    (
        "node-telegram-bot-api 0",
        "#getMyDefaultAdministratorRights",
        "compares with the whole list of rights of its day; Telegram has added some since",
    ),
    ("node-telegram-bot-api 2", "message draft", "a draft for a group; Telegram takes them for people alone"),
    (
        "node-telegram-bot-api 2",
        "saves a prepared keyboard button",
        "a button that shares nothing; the Bot API takes those that share people, chats or bots",
    ),
    ("node-telegram-bot-api 2", "leaves a chat", "a bot cannot leave a private chat, at Telegram neither"),
    (
        "node-telegram-bot-api 2",
        "edits a message checklist",
        "the message is no checklist; Telegram refuses it as well",
    ),
    (
        "node-telegram-bot-api 2",
        "declines a join request",
        "the test before it has approved the same request; Telegram says USER_ALREADY_PARTICIPANT as well",
    ),
    ("python-telegram-bot", "test_http_", "asks a server on the internet"),
    ("python-telegram-bot", "test_multiple_init_cycles", "asks a server on the internet"),
    ("python-telegram-bot", "test_do_request_wait_for_pool", "asks a server on the internet"),
    (
        "python-telegram-bot",
        "test_set_webhook_get_webhook_info_and_delete_webhook",
        "asks the internet's DNS for python-telegram-bot.org",
    ),
    (
        "python-telegram-bot",
        "WithRequest test_send_all_args",
        "size in bytes of a thumbnail that Telegram has encoded again",
    ),
    ("python-telegram-bot", "test_send_bytesio_jpg_file", "size in bytes of a photo that Telegram has encoded again"),
    ("python-telegram-bot", "test_send_mp4_file_url", "size of a thumbnail that Telegram's servers have made"),
    ("python-telegram-bot", "TestStickerWithRequest", "public stickers and sets, by their ids at Telegram"),
    ("python-telegram-bot", "test_videoquality", "a video in a channel of the authors', with its qualities"),
    ("tucnak/telebot", "TestBot/Edit(what=Media)", "the test itself fetches a video from telegra.ph"),
    ("tucnak/telebot", "TestBot", "counted as failed with the test inside it"),
)


def why(suite: str, test: str) -> str:
    """Why this test cannot pass; "" if nobody knows, and then it has to be mended."""
    return next((reason for name, part, reason in WHY if name == suite and part in test), "")


def go_ids(scene: Scene) -> None:
    path = scene.source / "bot_test.go"
    text = path.read_text(encoding="utf-8")
    ids = {
        "TestToken": f'"{TOKEN}"',
        "ChatID": str(USER),
        "Channel": f'"@{CHANNEL_NAME}"',
        "SupergroupChatID": str(GROUP),
        "ReplyToMessageID": "35",
        **{f"Existing{kind}FileID": f'"{file_id}"' for kind, file_id in scene.files.items()},
    }
    for name, value in ids.items():
        text = re.sub(rf"(?m)^(\t{name}\s*= ).*$", rf"\g<1>{value}", text)
    path.write_text(text, encoding="utf-8")


# ---- running one ----

PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAAC0lEQVR42mNgAAIAAAUAAen63NgAAAAASUVORK5CYII=")
GIF = b"GIF89a\x01\x00\x01\x00\x00\x00\x00;"


def furnish(sim: SimServer, suite: Suite, source: Path) -> dict[str, str]:
    """The people, chats and files that the suites take for granted. Gives the ids of the files."""
    telegram = sim.telegram
    telegram.options.change({"limits": {"on": False}, "anti_busy_loop": False, "accept_any_chat": suite.takes_any_chat})
    telegram.web = lambda url: lying_at(source, url)
    bot = telegram.add_bot(TOKEN, username="suite_bot", first_name="Suite")
    other = telegram.add_bot(f"{OTHER_BOT}:AAE-another", username="suite_other_bot", first_name="Other")
    owner = telegram.user(USER, "PTB", language_code="en", username="suite_owner", last_name="Test user")
    telegram.picture(bot, owner, UploadedFile(filename="owner.png", content=PNG.ljust(5403, b"\0")))
    people = [telegram.user(USER + number, f"Member {number}") for number in (1, 2)]
    telegram.chat("supergroup", ">>> telegram.Bot(test) @suite_bot", chat_id=GROUP, bots=[bot, other])
    telegram.chat("supergroup", "Suite forum", chat_id=FORUM, is_forum=True, bots=[bot, other])
    telegram.chat("channel", "Suite channel", chat_id=CHANNEL, username=CHANNEL_NAME, bots=[bot, other])
    for chat_id in (GROUP, FORUM, CHANNEL):
        for person in people:
            telegram.set_member(chat_id, person)
        telegram.set_member(chat_id, other.user, "administrator")
        telegram.set_member(
            chat_id, bot.user, "administrator", **({"can_promote_members": False} if chat_id == CHANNEL else {})
        )
    telegram.set_member(CHANNEL, owner, "creator")
    telegram.set_member(GROUP, people[0], "creator")
    telegram.join(bot, FORUM, owner, asks=True)
    telegram.user(PROFILE, "Profile", personal_chat=CHANNEL)
    telegram.call(TOKEN, "setChatPhoto", {"chat_id": GROUP}, {"photo": UploadedFile(filename="tea.png", content=PNG)})
    for _ in range(40):
        telegram.write(bot, owner, "A post", chat=CHANNEL, date=telegram.now() - 7 * 86_400)
        telegram.write(bot, owner, "An old message", date=telegram.now() - 7 * 86_400)
    for _ in range(3):
        telegram.write(bot, owner, "An old message", chat=GROUP)
    game = telegram.game(bot, "test_game", "A no-op test game, for python-telegram-bot bot framework testing.")
    still = telegram.upload(bot, owner, "photo", UploadedFile(filename="game.png", content=PNG.ljust(851, b"\0")))
    moving = telegram.upload(bot, owner, "animation", UploadedFile(filename="game.gif", content=GIF))
    game.photo, game.animation = still["photo"], moving["animation"]
    # What node-telegram-bot-api 2 takes for granted is called "e2e": a business account, and a question of each kind.
    telegram.connect(bot, owner, "e2e")
    patience = dict.fromkeys(("callback_s", "inline_s", "checkout_s"), TIME_MAX_S)
    telegram.options.change(patience if suite.name == "node-telegram-bot-api 2" else {})
    for kind in ("callback", "inline", "shipping", "pre_checkout"):
        bot.queries[kind, "e2e"] = SimQuery(kind=kind, asked_at=telegram.now(), chat_id=USER)
    names = ("Photo", "Document", "Audio", "Voice", "Video", "VideoNote", "Sticker")
    found = {}
    for name in names:
        kind = "video_note" if name == "VideoNote" else name.lower()
        message = telegram.upload(bot, owner, kind, UploadedFile(filename=f"{kind}.png", content=PNG))
        shown = message[kind]
        face = shown[-1] if isinstance(shown, list) else shown
        found[name] = face["file_id"]
    # Sets of Telegram's own that the suites name.
    sticker = UploadedFile(filename="sticker.png", content=PNG)
    for name in (STICKER_SET, "pusheen"):
        telegram.sticker_set(bot, name, [sticker])
    emojis = ["5380109565226391871", "5431711346724968789"]
    telegram.sticker_set(bot, "CherryEmoji", [sticker, sticker], kind="custom_emoji", emoji_ids=emojis)
    telegram.call(TOKEN, "sendGame", {"chat_id": FORUM, "game_short_name": "test_game"})
    bot.queue.clear()
    return found


# Where the suites' addresses lead: to files of their own, as their authors have put them there.
_ELSEWHERE = {
    "http://bit.ly/2L18jua": "game.gif",
    "https://goo.gl/3En24v": "telegram.mp3",
    "telegram_new.jpg": "telegram.jpg",
    "telegram.webp?raw=true": "telegram.webp",
}


def lying_at(source: Path, url: str) -> UploadedFile | None:
    last = url.rpartition("/")[2]
    name = _ELSEWHERE.get(url) or _ELSEWHERE.get(last) or last
    found = next(iter(sorted(source.glob(f"test*/**/{name}"))), None) if re.fullmatch(r"[\w.-]+\.\w+", name) else None
    return UploadedFile(filename=name, content=found.read_bytes()) if found is not None else None


@contextlib.asynccontextmanager
async def address(sim: SimServer, route: str, folder: Path) -> AsyncIterator[str]:
    if route == "straight":
        yield sim.url
        return
    async with aiohttp.ClientSession() as http:
        settings = {"bot_tokens": TOKEN, "pace": "off"}
        async with served(folder, sim.url, http, **settings) as peik:
            yield peik.url


@contextlib.asynccontextmanager
async def secured(url: str, folder: Path) -> AsyncIterator[str]:
    """The same address by TLS, with a certificate of an authority that lies in the folder."""
    certificate, key, _ = Authority(folder).certify("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    target = urlsplit(url)

    async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while data := await source.read(65_536):
                sink.write(data)
                await sink.drain()
        sink.close()

    async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner, outer = await asyncio.open_connection(target.hostname, target.port)
        await asyncio.gather(copy(reader, outer), copy(inner, writer))

    server = await asyncio.start_server(join, "127.0.0.1", 0, ssl=context)
    try:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def run(suite: Suite, source: Path, route: str, extra: list[str]) -> tuple[list[Outcome], str]:
    with tempfile.TemporaryDirectory(prefix="suite-") as temporary:
        work = Path(temporary)
        copy = work / "source"
        heavy = ("node_modules", ".venv", ".git", "__pycache__")
        shutil.copytree(source, copy, ignore=shutil.ignore_patterns(*heavy))
        for name in ("node_modules", ".venv"):
            if (source / name).exists():
                (copy / name).symlink_to((source / name).resolve())
        async with SimServer(options=Options(), seed=7) as sim:
            files = furnish(sim, suite, source)
            (work / "peik").mkdir()
            async with address(sim, route, work / "peik") as url, secured(url, work) as secure_url:
                scene = Scene(url=url, secure_url=secure_url, source=copy, work=work, files=files)
                suite.adapt(scene)
                environment = scrubbed(os.environ, but=("GO", "PYENV_"))
                environment |= {"PYTHONPATH": f"{work}{os.pathsep}{copy}{os.pathsep}{copy / 'src'}"}
                environment |= suite.environment(scene)
                command = [*suite.command(scene), *extra]
                try:
                    program = await asyncio.create_subprocess_exec(
                        *command,
                        cwd=copy / suite.folder,
                        env=environment,
                        stdin=asyncio.subprocess.DEVNULL,
                        stdout=asyncio.subprocess.PIPE,
                        stderr=asyncio.subprocess.STDOUT,
                    )
                except FileNotFoundError as missing:
                    return [], f"there is no {missing.filename}"
                try:
                    output, _ = await asyncio.wait_for(program.communicate(), TIME_MAX_S)
                except TimeoutError:
                    program.kill()
                    output, _ = await program.communicate()
                text = output.decode(errors="replace")
                return suite.read(scene, text), text


def version_of(source: Path) -> str:
    """The release that lies there, as its authors call it; "" where the sources do not say."""
    for name, pattern in (
        ("package.json", r'"version": "([^"]+)"'),
        ("pyproject.toml", r'(?m)^version = "([^"]+)"'),
        ("src/telegram/_version.py", r"Version\(\s*major=(\d+), minor=(\d+)"),
        ("go.mod", r"(?m)^module \S+[/.]v(\d+)$"),
    ):
        path = source / name
        found = re.search(pattern, path.read_text(encoding="utf-8")) if path.is_file() else None
        if found is not None:
            return ".".join(found.groups())
    return ""


def find(folder: Path) -> list[tuple[Suite, Path]]:
    """Which suites lie there."""
    found = []
    for source in [folder, *sorted(one for one in folder.iterdir() if one.is_dir())]:
        for suite in SUITES:
            path, words = suite.known_by
            if (source / path).is_file() and words in (source / path).read_text(encoding="utf-8", errors="replace"):
                found.append((suite, source))
    return found


async def main(
    folder: Path, *, only: str, routes: list[str], failures: bool, log: bool, write: Path | None, extra: list[str]
) -> int:
    suites = [(suite, source) for suite, source in find(folder) if only in suite.name]
    if not suites:
        print(f"No suite that we know lies in {folder}; docs/simulator.md says which.")
        return 2
    print(f"{'suite':<28} {'route':<10} passed of  skipped")
    seen: list[Seen] = []
    wrong: list[str] = []
    for suite, source in suites:
        passed: set[str] = set()
        for route in routes:
            outcomes, output = await run(suite, source, route, extra)
            judged = [one for one in outcomes if one.said is not None]
            failed = [one for one in judged if one.said]
            row = Seen(
                suite=suite.name,
                version=version_of(source),
                route=route,
                passed=len(judged) - len(failed),
                of=len(judged),
                skipped=len(outcomes) - len(judged),
                failed=[one.name for one in failed],
            )
            print(f"{row.suite:<28} {route:<10} {row.passed:>6} {row.of:>3} {row.skipped:>7}", flush=True)
            if not outcomes or log:
                print("\n".join(output.splitlines()[-60:]))
            for one in failed if failures else []:
                words = re.sub(r"\s+", " ", one.said or "")
                said = f"{words[:200]} … {words[-200:]}" if len(words) > 400 else words
                print(f"  {one.name}: {said}")
            seen.append(row)
            wrong += [f"{suite.name}, {route}: {name}" for name in row.failed if not why(suite.name, name)]
            wrong += [f"{suite.name}, {route}: nothing ran"] * (not outcomes)
            lost = [name for name in row.failed if name in passed and not why(suite.name, name)]
            wrong += [f"{suite.name}: {name} passes, but not through the gateway" for name in lost]
            passed |= {one.name for one in judged if not one.said}
    print(
        "\n".join(["To be mended, or explained in WHY:", *wrong] if wrong else ["Each failure has its reason in WHY."])
    )
    if write is not None and not wrong:
        text = msgspec.json.format(msgspec.json.encode(seen), indent=1)
        (write / "suites.json").write_bytes(text + b"\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m proofs.suites", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="suites whose name has this")
    parser.add_argument("--straight", action="store_true", help="not through the gateway")
    parser.add_argument("--failures", action="store_true", help="say what each failing test said")
    parser.add_argument("--log", action="store_true", help="the end of what the suite printed")
    parser.add_argument("--write", type=Path, help="keep what was seen in suites.json of this folder")
    given, extra = parser.parse_known_args()
    routes = ["straight"] if given.straight else ["straight", "gateway"]
    raise SystemExit(
        asyncio.run(
            main(
                given.folder,
                only=given.only,
                routes=routes,
                failures=given.failures,
                log=given.log,
                write=given.write,
                extra=extra,
            )
        )
    )
