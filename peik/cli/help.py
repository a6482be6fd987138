"""What `peik --help` and `peik help` say: one screen for a newcomer, the commands by groups, topics in a few lines each, and
one example or two for every command, which docs/reference/commands.md shows as well. A test runs each through its parser."""

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import typer
from typer.main import get_command_name

from peik.cli.command import EXITS
from peik.errors import BadInput

# The groups of commands: how `peik help` names each, and its title.
RUNNING, SENDING, RECEIVING, WORK, ACCOUNTS, ACCESS, OPERATING = GROUPS = (
    "running",
    "sending",
    "receiving",
    "work",
    "accounts",
    "access",
    "operating",
)

_FIRST = (
    ("demo", "watch it live, through an outage and a crash"),
    ("serve", "run it: keep what comes in, deliver what goes out"),
    ("doctor", "see whether it can work here, and what to change"),
    ('send 42 "Hello"', "send a message; once its id is printed, it is durable"),
    ("status 17", "how message 17 stands, why it waits, and every try"),
    ("stats", "how many wait, are sent, have failed; per bot"),
    ("dead list", "what failed for good, and why; dead retry sends again"),
    ("inbox", "where updates come from, and what waits to be read"),
)

TOPICS: Mapping[str, tuple[str, str]] = {
    "where": (
        "which Peik, store or archive a command speaks to",
        """
        A command that asks something speaks to a running Peik if one answers, else to the store itself. A message that is
        handed in while nothing runs is as durable as any other, and goes out when `peik serve` is started.

          --url http://host:8081        that Peik, and nothing else
          --store sqlite:///peik.db     that store, even if a Peik is running on it
          --archive mongodb://host/peik that archive, for commands about accounts
          none of them                  PEIK_URL, or the address in the settings, if a Peik answers there; else the store

        If a command fails, its error says which of them it was about.
        """,
    ),
    "keys": (
        "which key a running Peik is shown",
        """
        A running Peik wants a key: from --key-file, PEIK_KEY, PEIK_KEY_FILE, PEIK_ADMIN_KEY, or else from the file that
        `peik serve` keeps beside the database. That file is shown to this machine's own Peik only. `peik keys create` makes
        keys for programs.

        A bot's token, a code and a password are never arguments, since other users of a machine can read those and shells
        remember them. They are asked for, read from standard input (`-`), or from a file (--token-file).
        """,
    ),
    "programs": (
        "JSON, pipes and scripts",
        """
        Commands that print data take --json: one JSON document on standard output and nothing else, as REST answers it; an
        error is problem JSON (RFC 9457) on standard error. Nothing is asked then: what is dangerous wants --yes. Where
        output is piped there is no colour, no line is folded, and numbers and times are the same in every locale.

          id=$(peik send "$CHAT" "Backup done" --json | jq -r .id)
          peik status "$id" --json | jq -r .state
        """,
    ),
    "times": (
        "how times are written and shown",
        """
        10m is ten minutes from now (or ago, with --since). 2026-11-15T08:30 is local time; with Z or an offset it is what it
        says. Nine to eleven digits are Unix seconds. In a terminal, times and numbers are shown as the locale (LC_TIME,
        LC_NUMERIC) has them, in the machine's own zone (TZ).
        """,
    ),
    "settings": (
        "where settings come from",
        """
        Flags of `peik serve` win over the environment (PEIK_...), that over .env, that over peik.toml. `peik config show`
        prints what is in force and where each value comes from, `peik config example` an .env with all of them.
        """,
    ),
    "exits": ("exit codes", "\n".join(f"{int(code):>3}  {meaning}" for code, meaning in EXITS.items())),
    "completion": (
        "completion in bash, zsh and fish",
        """
        `peik --install-completion` sets it up for the shell that you are in; `peik --show-completion bash` (or zsh, fish)
        prints the script.
        """,
    ),
}


class FirstScreen(typer.core.TyperGroup):
    """The group of all commands: its help is one screen."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        typer.echo("\n".join(_first_screen(self)))  # as Typer prints the help of others: by itself


class _Command(typer.core.TyperCommand):
    """A command whose flags are shown as flags: Typer shows `--yes <bool>`, and no value may follow."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        _show_flags(self, ctx)
        super().format_help(ctx, formatter)


class _Group(typer.core.TyperGroup):
    def format_help(self, ctx: Any, formatter: Any) -> None:
        _show_flags(self, ctx)
        super().format_help(ctx, formatter)


class Listing(_Group):
    """A group that alone is its `list`: `peik nodes`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] != "--help"):
            args = ["list", *args]
        return super().parse_args(ctx, args)


def _show_flags(command: Any, ctx: Any) -> None:
    for one in command.get_params(ctx):
        if getattr(one, "is_flag", False) and one.metavar is None:
            one.metavar = ""


def with_plain_flags(app: typer.Typer) -> None:
    """For all commands of it. After the last one was added."""
    for info in app.registered_commands:
        info.cls = _Command
    for group in app.registered_groups:
        assert group.typer_instance is not None
        if not isinstance(group.typer_instance.info.cls, type):
            group.cls = _Group
        with_plain_flags(group.typer_instance)


def _first_screen(root: Any) -> Iterator[str]:
    yield "Peik, the courier for Telegram: a durable inbox and outbox for bots."
    yield ""
    for words, meaning in _FIRST:
        yield f"  peik {words:<16} {meaning}"
    yield ""
    yield "All commands (peik help GROUP):"
    for group in GROUPS:
        names = [name for name, one in root.commands.items() if one.rich_help_panel == group and not one.hidden]
        if names:
            yield from _folded(f"  {group:<11}", names)
    yield ""
    yield from _folded("Topics (peik help TOPIC): ", list(TOPICS))
    yield "Everything about a command: peik COMMAND --help · the version: peik --version"


def _folded(head: str, names: list[str]) -> Iterator[str]:
    line = head
    for name in names:
        if len(line) + len(name) + 1 > 79:
            yield line
            line = " " * len(head)
        line += ("" if line.endswith("  ") or (line is head and head.endswith(" ")) else " ") + name
    yield line


def help_about(ctx: Any, words: list[str]) -> str:
    """What `peik help …` says; nothing if Typer has printed it. Raises BadInput if there is neither such a command nor such a
    group or topic."""
    root = ctx.find_root().command
    if not words:
        return "\n".join(_first_screen(root))
    if len(words) == 1 and words[0] in TOPICS:
        return inspect.cleandoc(TOPICS[words[0]][1])
    if len(words) == 1 and words[0] in GROUPS:
        return "\n".join(_group(root, words[0]))
    return _of_command(ctx.find_root(), words)


def _group(root: Any, group: str) -> Iterator[str]:
    members = [(name, one) for name, one in root.commands.items() if one.rich_help_panel == group and not one.hidden]
    width = max(len(name) for name, _ in members)
    for name, one in members:
        yield f"peik {name:<{width}}  {_sentence(one)}"


def _sentence(command: Any) -> str:
    return " ".join((command.help or "").split()).split(". ")[0].rstrip(".")


def _of_command(root_context: Any, words: list[str]) -> str:
    command, context = root_context.command, root_context
    for word in words:
        found = getattr(command, "commands", {}).get(word)
        if found is None:
            known = ", ".join((*GROUPS, *TOPICS))
            detail = f"There is no command, group or topic {' '.join(words)!r}. Groups and topics: {known}."
            raise BadInput(code="unknown_topic", detail=detail)
        command = found
        context = type(root_context)(command, info_name=word, parent=context)
    return str(command.get_help(context))


# By the words of the command. What follows them is an example's own; the first words are put before it.
EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "serve": ("", "--replace", "--port 9000 --store postgresql://peik@db/peik --bot-tokens-file token.txt"),
    "demo": ("", "--once"),
    "sim": ("--port 8082", """--port 8082 --config '{"accept_any_token": false}'"""),
    "send": (
        '42 "Hello, <b>Sara</b>" --param parse_mode=HTML --wait 10s',
        "42 --method sendPhoto --file photo=cat.jpg",
    ),
    "status": ("17",),
    "log": ("--state failed --since 1d", "--user 42 --type receipt"),
    "letters": ("--state failed --since 1h", '--chat 42 --text "order 7"'),
    "cancel": ("17", "--chat 42 --state delayed --yes"),
    "change": ("17 --priority 1", "17 --send-at now"),
    "resolve": ("17 --arrived", "17 --not-arrived"),
    "stats": ("", "--watch"),
    "lanes": ("--chat 42",),
    "inbox": ("",),
    "recover": ("--bot 123456",),
    "logs": ("--level warning --since 1h",),
    "notify": ('user-7 "Your parcel is here" --type parcel',),
    "routes": ("",),
    "audit": ("--since 24h --action retryLetter",),
    "forget": ("--user 42 --dry-run", "--user 42 --yes"),
    "doctor": ("", "--for 5k"),
    "load": ("--letters 50/s --updates 20/s --for 5m", "--profile 5k --report load.html"),
    "migrate": (
        "--from sqlite:///peik.db --to postgresql://peik@db/peik --dry-run",
        "--from sqlite:///peik.db --to redis://localhost:6379",
    ),
    "import": ("bot.db --dry-run", "bot.db --yes", "outbox.csv --map chat=peer --pending queued"),
    "version": ("",),
    "help": ("", "sending", "times", "dead retry"),
    "dead list": ("--since 24h", '--error "blocked by the user"'),
    "dead show": ("17",),
    "dead causes": ("--since 24h",),
    "dead retry": ("17", "--all --since 1h --yes"),
    "dead clear": ('--all --error "chat not found" --yes',),
    "broadcast create": (
        '--text "We are open again" --contacts --canary 20',
        '--text "Hello" --csv people.csv --start',
    ),
    "broadcast list": ("",),
    "broadcast show": ("3 --wait 10m",),
    "broadcast estimate": ("3",),
    "broadcast ledger": ("3 --state failed --format csv --output failed.csv",),
    "broadcast preview": ("3 42",),
    "broadcast start": ("3", "3 --send-at 2027-01-01T09:00:00Z"),
    "broadcast pause": ("3",),
    "broadcast resume": ("3 --wait 10m",),
    "broadcast cancel": ("3",),
    "broadcast recall": ("3 --yes",),
    "broadcast delete": ("3 --yes",),
    "schedules put": (
        'morning --cron "30 9 * * 1-5" --tz Asia/Tehran --chat 42 --text "It is %{date}"',
        'report --cron @daily --job report --param day="%{date-1}" --dry-run',
    ),
    "schedules list": ("",),
    "schedules show": ("morning",),
    "schedules runs": ("morning",),
    "schedules edits": ("morning",),
    "schedules pause": ("morning",),
    "schedules resume": ("morning",),
    "schedules run": ("morning",),
    "schedules delete": ("morning --yes",),
    "jobs list": ("--kind download --state failed",),
    "jobs show": ("9 --wait 5m",),
    "jobs stats": ("",),
    "jobs kinds": ("",),
    "jobs pause": ("download --why 'the site asked us to wait'",),
    "jobs resume": ("download",),
    "jobs rate": ("download 30/m",),
    "jobs used": ("download 42",),
    "jobs hosts": ("",),
    "jobs queue": ("download --param url=https://example.org/film.mp4 --user 42 --wait 5m",),
    "jobs cancel": ("9",),
    "jobs retry": ("9",),
    "arrivals list": ("--state waiting --since 1h",),
    "arrivals dead": ("--consumer default",),
    "arrivals show": ("31",),
    "arrivals retry": ("31", "--all --since 1h --yes"),
    "arrivals clear": ("--all --consumer default --yes",),
    "arrivals replay": ("--since 1h --dry-run", "--chat 42 --since 24h --yes"),
    "arrivals ack": ("default --number 31",),
    "arrivals seen": ("42 1001",),
    "consumers list": ("",),
    "consumers set": ("default --push-to https://bot.example.org/updates",),
    "consumers remove": ("stats --yes",),
    "sessions list": ("--state active",),
    "sessions show": ("s1",),
    "sessions chats": ("s1",),
    "sessions create": ("--agent shop --phone +998901234567",),
    "sessions set": ("s1 --proxy socks5://127.0.0.1:1080", "s1 --keep private=nothing --keep -1001234567890=all"),
    "sessions deactivate": ("s1",),
    "sessions activate": ("s1",),
    "sessions delete": ("s1 --yes",),
    "sessions cleanup": ("--days 30",),
    "sessions reseal": ("",),
    "sessions start": ("s1",),
    "sessions stop": ("s1",),
    "sessions restart": ("s1",),
    "sessions log-out": ("s1 --yes",),
    "sessions crawl": ("s1 -1001234567890 --until 2026-01-01", "s1 -1001234567890 --dry-run"),
    "sessions sign-in": ("s1", "s1 --qr"),
    "sessions join": ("s1 https://t.me/+AbCdEf0123456789",),
    "sessions members": ("s1 -1001234567890 --watch 1d", "s1 -1001234567890 --at 30d"),
    "sessions contacts": ("s1", "s1 --add +998901234567=Sara"),
    "sessions export": ("s1",),
    "sessions import-string": ("--agent shop --check",),
    "sessions import": ("old.session --agent shop --check",),
    "messages list": ("--chat 42 --since 24h",),
    "messages show": ("s1 42 1001",),
    "messages count": ("--agent shop --since 7d",),
    "messages stats": ("",),
    "messages export": ("messages.jsonl --chat 42",),
    "messages follow": ("--session s1",),
    "messages forget": ("42 --yes",),
    "events list": ("--session s1 --since 1h",),
    "events follow": ("--session s1",),
    "bots list": ("",),
    "bots add": ("", "--token-file token.txt --inbound polling"),
    "bots pause": ("123456",),
    "bots resume": ("123456",),
    "bots token": ("123456",),
    "bots remove": ("123456 --yes",),
    "bots inbound": ("123456 off",),
    "bots limits": ("123456 --bulk-per-s 20",),
    "users link": ("user-7 --expires-in 10m",),
    "users show": ("user-7",),
    "users unlink": ("user-7",),
    "users list": ("",),
    "chats list": ("",),
    "chats open": ("42",),
    "chats hold": ("42 --until 10m",),
    "keys list": ("",),
    "keys create": ("shop --scope send --expires 90d",),
    "keys remove": ("2 --yes",),
    "secrets status": ("",),
    "secrets rotate": ("",),
    "secrets open": ("--yes",),
    "secrets mend": ("--token-file token.txt",),
    "admins add": ("sara --role operator",),
    "admins list": ("",),
    "admins remove": ("sara",),
    "admins password": ("sara",),
    "nodes list": ("",),
    "nodes drain": ("web-1 --wait",),
    "nodes resume": ("web-1",),
    "alerts list": ("",),
    "alerts test": ("",),
    "backup create": ("",),
    "backup list": ("",),
    "backup verify": ("", "peik-20261116T083000Z-1d23.backup"),
    "backup restore": ("peik-20261116T083000Z-1d23.backup",),
    "config show": ("",),
    "config example": ("--production",),
    "config texts": ("",),
}


def lines_of(name: str) -> list[str]:
    """The examples of a command as they are typed; none if it has none."""
    return [f"peik {name} {rest}".rstrip() for rest in EXAMPLES.get(name, ())]


def show_examples(app: typer.Typer) -> None:
    """Put them at the end of every command's help. After the last command was added."""
    for name, info in _commands(app, ()):
        if lines := lines_of(name):
            info.epilog = f"{'Example' if len(lines) == 1 else 'Examples'}:\n" + "\n".join(f"  {one}" for one in lines)


def _commands(app: typer.Typer, words: tuple[str, ...]) -> Iterator[tuple[str, typer.models.CommandInfo]]:
    for info in app.registered_commands:
        yield " ".join((*words, name_of(info))), info
    for group in app.registered_groups:
        assert group.typer_instance is not None
        assert group.name is not None
        yield from _commands(group.typer_instance, (*words, group.name))


def name_of(command: typer.models.CommandInfo) -> str:
    assert command.callback is not None
    return command.name or get_command_name(command.callback.__name__)
