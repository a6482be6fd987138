"""What each how-to of ARCHITECTURE.md changes in files that are there already: (how-to, file, after this, comes this)."""

from typing import NamedTuple


IMPORTS = "imports"  # before the first import of Peik
END = ""


class Edit(NamedTuple):
    how_to: str
    path: str
    after: str  # stands there once, unless it is one of the two above
    added: str


def _alert() -> tuple[str, str]:
    words = 'def toy_broken(event: events.ToyBroke, _: int) -> str:\n    return f"{event.left} toys are left."\n\n\n'
    row = (
        'as_rule(AlertRule(name="toy-broken", means="A toy broke.", todo="Mend it.", event=events.ToyBroke,'
        " text=toy_broken, repeat_s=HOUR_S, is_moment=True)),"
    )
    return words, row


_WORDS, _ROW = _alert()
_HEAD = "def noticed(event: Noticed, _: int) -> str:\n    return event.words\n\n\n"
_BODY = "    send_at: Time = None\n    idempotency_key: str | None = None\n"
_CHECKED = """    if request.label == "":
        raise BadInput(code="bad_label", detail="A label has at least one character.")
"""
_OPTION = '    label: Annotated[str | None, _option(_HOW, "A label.", "WORD")] = None,\n'
_SETTING = (
    '    Setting(name="toys", group=SettingGroup.OTHER, default="3", parse=parse_positive, help="How many toys."),\n'
)
_CASE = """        case StoreKind.TOY:
            from pathlib import Path

            from peik.storage.toy.store import ToyStore

            path = Path(config.store.partition("://")[2][1:]).absolute()
            return ToyStore(path, clock=clock, is_owner=must_own, on_blobs_freed=on_blobs_freed, seals=seals)
"""
_COPIED = """        case StoreKind.TOY:
            raise StartError("The toy store has no backups.")
"""

EDITS = (
    Edit("field", "peik/broadcasts/model.py", "    created_by: str | None = None\n", "    label: str | None = None\n"),
    Edit("field", "peik/broadcasts/service.py", "    created_by: str | None = None\n", "    label: str | None = None\n"),
    Edit("field", "peik/broadcasts/service.py", "    check_start(request.start_at_ms, at_ms)\n", _CHECKED),
    Edit("field", "peik/broadcasts/service.py", "created_by=request.created_by,\n", "        label=request.label,\n"),
    Edit("field", "peik/broadcasts/api.py", _BODY, "    label: str | None = None\n"),
    Edit("field", "peik/broadcasts/api.py", "        key=body.idempotency_key or key,\n", "        label=body.label,\n"),
    Edit("field", "peik/broadcasts/api.py", "    paid: PaidAnswer | None\n", "    label: str | None\n"),
    Edit("field", "peik/broadcasts/api.py", "paid=_paid(broadcast),\n", "            label=broadcast.label,\n"),
    Edit("field", "peik/broadcasts/cli.py", '"What it is called.", "WORDS")] = None,\n', _OPTION),
    Edit("field", "peik/broadcasts/cli.py", '        "name": name,\n', '        "label": label,\n'),
    Edit("field", "peik/client/broadcasts.py", "    reason: str | None = None\n", "    label: str | None = None\n"),
    Edit("field", "peik/client/broadcasts.py", "        name: str | None = None,\n", "        label: str | None = None,\n"),
    Edit("field", "peik/client/broadcasts.py", '            "name": name,\n', '            "label": label,\n'),
    Edit("setting", "peik/settings/table.py", "SETTINGS: tuple[Setting, ...] = (\n", _SETTING),
    Edit("setting", "peik/settings/config.py", "    home: Path\n", "    toys: int\n"),
    Edit("operation", "peik/app/build.py", IMPORTS, "from peik.toys.wiring import toys_of\n"),
    Edit("operation", "peik/app/build.py", "    return Runtime(\n", "        toys=toys_of(context),\n"),
    Edit("operation", "peik/app/runtime.py", IMPORTS, "from peik.toys.service import ToyService\n"),
    Edit("operation", "peik/app/runtime.py", "    outbox: Outbox\n", "    toys: ToyService\n"),
    Edit("operation", "peik/app/apis.py", IMPORTS, "from peik.toys.api import ToyApi\n"),
    Edit("operation", "peik/app/apis.py", "API_CLASSES = (", "ToyApi, "),
    Edit("operation", "peik/app/apis.py", "        AlertApi(peik.watch.alerts, peik.watch.overview),\n", "        ToyApi(peik.toys),\n"),
    Edit("operation", "peik/app/commands.py", IMPORTS, "from peik.toys import cli as toys\n"),
    Edit("operation", "peik/app/commands.py", 'app.add_typer(alerts.app, name="alerts", rich_help_panel=OPERATING)\n', 'app.add_typer(toys.app, name="toys", rich_help_panel=OPERATING)\n'),
    Edit("operation", "peik/cli/help.py", '    "alerts list": ("",),\n', '    "toys count": ("",),\n    "toys break": ("",),\n'),
    Edit("alert", "peik/core/events.py", END, "\n\nclass ToyBroke(Event, frozen=True, kw_only=True):\n    left: int\n"),
    Edit("alert", "peik/monitoring/log.py", "    match event:\n        case events.Settled():\n            _write_letter(pen, event)\n", '        case events.ToyBroke(left=left):\n            pen.book.warning("! toy broke", left=left)\n'),
    Edit("alert", "peik/alerts/rules.py", _HEAD, _WORDS),
    Edit("alert", "peik/alerts/rules.py", "    # the machine\n", f"    {_ROW}\n"),
    Edit("alert", "docs/runbook.md", "## The machine\n", "\n### toy-broken\nA toy broke.\n"),
    Edit("page", "peik/app/dashboard.py", IMPORTS, "from peik.toys.pages import ToyPages\n"),
    Edit("page", "peik/app/dashboard.py", "        *JobPages(board).table(),\n", "        *ToyPages(board).table(),\n"),
    Edit("page", "peik/web/dashboard/render.py", '            ("nav_nodes", "/admin/nodes", Role.VIEWER, False),\n', '            ("nav_toys", "/admin/toys", Role.VIEWER, False),\n'),
    Edit("store", "peik/settings/values.py", '    REDIS = "redis"\n', '    TOY = "toy"\n'),
    Edit("store", "peik/settings/values.py", "STORE_KINDS = {\n", '    "toy": StoreKind.TOY,\n'),
    Edit("store", "peik/storage/open.py", "    match config.store_kind:\n", _CASE),
    Edit("store", "peik/backups/wiring.py", "    match config.store_kind:\n", _COPIED),
    Edit("store", "tests/storage/all_places.py", "PLACES: tuple[type[Place], ...] = (SqlitePlace,)\n", "from tests.storage.toy_place import ToyPlace  # noqa: E402\n\nPLACES += (ToyPlace,)\n"),
)  # fmt: skip
