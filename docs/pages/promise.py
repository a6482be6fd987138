"""The promise in figures: what the last runs of the proofs with real processes saw."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from docs.pages.markdown import REFERENCE, figure, table

PROMISE = REFERENCE / "promise_proof.json"
_STORES = {"none": "without Peik", "sqlite": "SQLite", "postgres": "PostgreSQL", "redis": "Redis"}
_DEATHS = {
    "killed": "killed with -9 in the middle of handlers",
    "ended": "asked to end in the middle of handlers",
    "replaced": "Peik replaced under them in the middle of handlers",
}
_NEVER = ("again for no death in the window", "calls refused", "given up")
_RESTARTS = ("restarts", "answered", "late", "echoed", "streamed", "refused", "lost", "missing", "doubled", "slowest_s")


def promise_parts() -> Iterator[str]:
    """Of the last runs of the proofs with real bots, which wrote down what they saw."""
    document: dict[str, Any] = json.loads(PROMISE.read_text(encoding="utf-8"))
    yield (
        "[What can be lost or doubled](../guarantees.md), with real processes, bot libraries with their own defaults, real "
        "servers, and the simulated Telegram, on two busy cores: times are upper bounds."
    )
    yield "## Bots that die"
    yield (
        "`make deaths-proof`: each bot ends ten times, with five texts in each of its lives. A cell is what was lost, and what "
        "was answered again: the latter is allowed within `PEIK_POLLING_REDELIVERY`. grammY and Telegraf confirm after their "
        "handlers: what they answered and did not confirm comes again, as at Telegram."
    )
    for how, words in _DEATHS.items():
        yield f"### {words[:1].upper()}{words[1:]}"
        runs = {store: document[f"{how} {store}"] for store in _STORES if f"{how} {store}" in document}
        rows = [(library, *(_lost(run[library]) for run in runs.values())) for library in next(iter(runs.values()))]
        yield table(("library: lost · again", *(_STORES[store] for store in runs)), rows)
        texts = {counts["written"] for run in runs.values() for counts in run.values()}
        others = {name: sum(counts[name] for run in runs.values() for counts in run.values()) for name in _NEVER}
        yield f"Of {'/'.join(map(str, sorted(texts)))} texts each; {', '.join(f'{name}: {n}' for name, n in others.items())}."
    yield "## Telegram dark for two minutes"
    yield (
        "`make dark-proof`: an aiogram bot in a private chat, a group and a channel sends, edits, answers, pins, forwards, "
        "copies and deletes what it has just sent, albums too; Peik is killed in the middle. *Different* counts messages that "
        "are not as at a Telegram that was never dark."
    )
    yield _beside(document, "dark")
    yield "## Restarts"
    yield (
        "`make restart-proof`: 15 callers, an aiogram bot and a reader of the event stream, none of whom tries a call again. "
        "`socket`: SIGTERM, with the socket kept as by systemd; `replace`: `peik serve --replace`. *Late*: answered with a "
        "provisional id, since the letter goes on."
    )
    keys = [f"{how} {store}" for how in ("socket", "replace") for store in _STORES if f"{how} {store}" in document]
    yield table(("what", *keys), [(name, *(figure(document[key].get(name)) for key in keys)) for name in _RESTARTS])
    yield "## People first"
    yield (
        "`make people-proof`: news to 1,200 chats, 40 at once, at a Telegram with strict limits, and people who write "
        "meanwhile. And a hundred edits in a private chat, through Peik and straight in turn."
    )
    yield table(("what", "figure"), [(name, f"{value}") for name, value in document["people"].items()])


def _lost(counts: Mapping[str, Any]) -> str:
    return f"{counts['lost']} · {counts['answered again']}"


def _beside(document: Mapping[str, Any], what: str) -> str:
    """The runs of one proof on several stores, beside each other."""
    stores = [store for store in _STORES if f"{what} {store}" in document]
    runs = [document[f"{what} {store}"] for store in stores]
    rows = [(name, *(figure(run[name]) for run in runs)) for name in runs[0] if not isinstance(runs[0][name], list)]
    return table(("what", *(_STORES[store] for store in stores)), rows)
