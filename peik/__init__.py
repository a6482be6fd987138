"""Peik, the courier for Telegram."""

import importlib

__version__ = "0.1.0.dev0"

# Where each public name lives. They are found when they are first asked for, so that `import peik` costs nothing;
# `__init__.pyi` tells type checkers the same.
_HOMES = {
    "peik.archive.store": ("Direction", "LineKind", "SessionState"),
    "peik.broadcasts.model": ("Canary",),
    "peik.core.letter": ("OnUncertain", "Priority", "State"),
    "peik.core.quiet": ("Quiet",),
    "peik.errors": (
        "BadInput",
        "Conflict",
        "Denied",
        "Forbidden",
        "InDoubt",
        "NotFound",
        "Problem",
        "StartError",
        "StoreUnavailable",
        "TooLarge",
        "TooMany",
        "Unavailable",
    ),
    "peik.jobs.outcome": ("JobHopeless", "JobLater"),
    "peik.jobs.hosts": ("HostDown",),
    "peik.jobs.job": ("BlockingJob", "Job"),
    "peik.client.transport": (
        "AccountSession",
        "ArchivedEvent",
        "ArchivedMessage",
        "FeedLine",
        "ImportedFile",
        "QrLogin",
        "SessionChat",
    ),
    "peik.schedules.model": ("BroadcastWork", "JobWork", "LetterWork"),
    "peik.client.calls": ("Call", "Letter", "QueueStats", "Receipt", "Refused"),
    "peik.client.enqueue": ("enqueue", "enqueue_sync"),
    "peik.client.peik": ("BlockingPeik", "Peik"),
    "peik.client.handlers": ("Update",),
    "peik.client.jobs": ("HostInfo", "JobCounts", "JobInfo", "JobPlace", "JobRun", "JobsUsed", "QueuedJob"),
    "peik.core.documents": ("ContactFilter",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'peik' has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})
