"""The words in which people hear how their job goes, of one language."""

from collections.abc import Mapping

import msgspec

# What each sentence may hold between braces.
JOB_PLACES: Mapping[str, frozenset[str]] = {
    "queued": frozenset(),
    "next": frozenset(),
    "ahead": frozenset({"ahead"}),
    "ahead_about": frozenset({"ahead", "wait"}),
    "later": frozenset({"wait"}),
    "working": frozenset(),
    "progress": frozenset({"bar", "percent"}),
    "done": frozenset(),
    "failed": frozenset(),
    "failed_why": frozenset({"why"}),
    "cancelled": frozenset(),
    "percent": frozenset({"n"}),
    "others": frozenset({"n"}),
}


class JobWords(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    queued: str  # the first that people see of a job
    next: str
    ahead: str
    ahead_about: str
    later: str  # it was put off, or is tried again
    working: str
    progress: str
    done: str
    failed: str
    failed_why: str
    cancelled: str
    percent: str
    others: tuple[str, ...]  # how many are ahead, as forms for numbers
