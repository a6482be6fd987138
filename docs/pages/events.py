"""Every event, from the modules that have them."""

from collections.abc import Iterator

from docs.pages.markdown import code, table
from peik.accounts import events as session_events
from peik.admin import model as admin_events
from peik.backups import model as backup_events
from peik.broadcasts import model as broadcast_events
from peik.core import events
from peik.jobs import events as job_events
from peik.notifications import model as notification_events
from peik.schedules import model as schedule_events

_ABOUT = {
    events: "Letters, updates, bots, ways to Telegram, the store",
    job_events: "Jobs",
    session_events: "Accounts",
    broadcast_events: "Broadcasts",
    schedule_events: "Recurring work",
    notification_events: "Notifications",
    admin_events: "People who run Peik",
    backup_events: "Backups",
}


def events_parts() -> Iterator[str]:
    yield (
        "Everything that can be observed of Peik is an event, and logs, metrics, alerts and the dashboard only listen to those. "
        "They are no API, and may change; they say what a line of the log can be about. All have `bot_id`, 0 for all of Peik."
    )
    for module, about in _ABOUT.items():
        kinds = [one for one in vars(module).values() if isinstance(one, type) and issubclass(one, events.Event)]
        rows = [
            (
                code(kind.__name__),
                " ".join(code(name) for name in kind.__struct_fields__ if name != "bot_id"),
                _meaning(kind),
            )
            for kind in kinds
            if kind.__module__ == module.__name__ and kind is not events.Event
        ]
        yield f"## {about}"
        yield table(("event", "with", "what it tells"), rows)


def _meaning(kind: type) -> str:
    return " ".join((vars(kind).get("__doc__") or "").split()).replace("|", "\\|")
