"""There and back on any store: what a backup is made of, without the command line."""

from pathlib import Path

from peik.backups.service import Backups
from peik.backups.wiring import backups_of
from peik.clock import SystemClock
from peik.settings.config import load
from tests.storage.moving.filling import url_of
from tests.storage.places import Place


def backups_in(folder: Path, place: Place | str, **settings: str) -> Backups:
    """Those of the store in this place, or at this address."""
    url = place if isinstance(place, str) else url_of(place)
    named = {"PEIK_STORE": url, "PEIK_HOME": str(folder), "PEIK_BACKUPS": str(folder / "backups")}
    environment = named | {f"PEIK_{name.upper()}": value for name, value in settings.items()}
    return backups_of(load({}, environment=environment, folder=folder), clock=SystemClock())
