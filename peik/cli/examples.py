"""One example for every command, shown at the end of its `--help` and in docs/cli.md. A test runs each through its parser."""

from collections.abc import Iterator, Mapping

import typer
from typer.main import get_command_name

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
