"""Time zones by their names. They are read from files of the machine, so that this is not for `core`."""

import datetime
import zoneinfo

from peik.core.problem import BadInput


def zone_of(name: str) -> datetime.tzinfo:
    """The zone of an IANA name: Asia/Tehran. Raises BadInput if this machine does not know it."""
    if name == "UTC":  # also where there are no files of zones at all
        return datetime.UTC
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise BadInput(
            code="unknown_zone", detail=f"There is no time zone {name!r} here. Names are such as Asia/Tehran, or UTC."
        ) from None
