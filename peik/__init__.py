"""Peik, the courier for Telegram."""

import importlib

__version__ = "0.1.0.dev0"

# Where each public name lives. They are found when they are first asked for, so that `import peik` costs nothing;
# `__init__.pyi` tells type checkers the same.
_HOMES = {
    "peik.archive_ports": ("Direction", "LineKind", "SessionState"),
    "peik.core.broadcast": ("Canary",),
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
        "Unavailable",
    ),
    "peik.jobs.endings": ("JobHopeless", "JobLater"),
    "peik.jobs.faults": ("HostDown",),
    "peik.jobs.job": ("BlockingJob", "Job"),
    "peik.library.accounts_values": (
        "AccountSession",
        "ArchivedEvent",
        "ArchivedMessage",
        "FeedLine",
        "ImportedFile",
        "QrLogin",
        "SessionChat",
    ),
    "peik.library.calls": ("Call",),
    "peik.library.enqueue": ("enqueue", "enqueue_sync"),
    "peik.library.front": ("Peik",),
    "peik.library.handlers": ("Update",),
    "peik.library.jobs_values": ("HostInfo", "JobCounts", "JobInfo", "JobPlace", "JobRun", "JobsUsed", "QueuedJob"),
    "peik.library.letters": ("Letter", "QueueStats", "Receipt", "Refused"),
    "peik.paper_ports": ("ContactFilter",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'peik' has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})
