"""Builds the desk of imports, for a node and for a command on the store alike."""

from peik.building_inbox import numbering_of
from peik.clock import Clock
from peik.config import Config
from peik.importing.desk import ImportDesk
from peik.store.choosing import AnyStore


def import_desk_of(config: Config, store: AnyStore, *, clock: Clock) -> ImportDesk:
    return ImportDesk(
        papers=store.papers,
        contacts=store.contacts,
        inbox=store.inbox,
        clock=clock,
        server=numbering_of(config),
    )
