"""How toys are put together."""

from peik.app.context import Context
from peik.toys.service import ToyService


def toys_of(ground: Context) -> ToyService:
    return ToyService(count=ground.config.toys, events=ground.events)
