"""What all of Peik stands on. It is there before anything is built, and open already."""

import random

import msgspec

from peik.clock import Clock, SettledClock
from peik.core.events import Events
from peik.settings.config import Config
from peik.storage.open import AnyStore
from peik.storage.spool import SpoolPort


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """Handed to every step of `peik.app.build.build`."""

    config: Config
    clock: Clock
    settled: SettledClock  # of what destroys by age
    chance: random.Random
    events: Events
    store: AnyStore
    spool: SpoolPort
