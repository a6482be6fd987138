"""For testing bots and Peik itself: the simulated Telegram and virtual time."""

from peik.testing.answer import Answer, Counters, Delivery, Ledger, Pending, UploadedFile
from peik.testing.faults import Exchange, Fault, Faults, How, Kind, Limits, Options
from peik.testing.server import SimServer, run_sim
from peik.testing.telegram import Telegram
from peik.testing.updates import PushResult
from peik.testing.world import Push

__all__ = [
    "Answer",
    "Counters",
    "Delivery",
    "Exchange",
    "Fault",
    "Faults",
    "How",
    "Kind",
    "Ledger",
    "Limits",
    "Options",
    "Pending",
    "Push",
    "PushResult",
    "SimServer",
    "Telegram",
    "UploadedFile",
    "run_sim",
]
