"""How toys are put together."""

from peik.app.context import Context
from peik.toys.service import ToyService


def toys_of(context: Context) -> ToyService:
    return ToyService(count=context.config.toys, events=context.events)
