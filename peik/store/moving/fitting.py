"""What stores do not keep alike: a record is fitted to its target before it is written and counted."""

import msgspec

from peik.store.moving.records import Inbox, Record


def fit_dates(record: Record) -> Record:
    """For stores that say when an inbox was last changed: at the latest time that is known of it."""
    if isinstance(record, Inbox) and record.updated_at is None:
        known = (record.epoch_at, record.started_at, record.seen_at, record.received_at)
        return msgspec.structs.replace(record, updated_at=max(at for at in known if at is not None))
    return record


def without_nul(record: Record) -> Record:
    """For PostgreSQL, whose texts hold no NUL: the sign for what cannot be shown stands in its place, as in the store itself."""
    cells = msgspec.structs.astuple(record)
    if not any(isinstance(cell, str) and "\0" in cell for cell in cells):
        return record
    shown = [cell.replace("\0", "\N{REPLACEMENT CHARACTER}") if isinstance(cell, str) else cell for cell in cells]
    return type(record)(*shown)
