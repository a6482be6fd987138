"""Toys over the API."""

import msgspec

from peik.toys.service import ToyService
from peik.web.access import Caller
from peik.web.operations import operation


class ToysAnswer(msgspec.Struct, frozen=True, kw_only=True):
    count: int


class ToyApi:
    def __init__(self, toys: ToyService) -> None:
        self._toys = toys

    @operation("GET", "/v1/toys", name="getToys", tag="toys", scope="read")
    async def get_toys(self, caller: Caller) -> ToysAnswer:
        """How many toys there are."""
        return ToysAnswer(count=self._toys.count)

    @operation("POST", "/v1/toys/break", name="breakToy", tag="toys", scope="admin")
    async def break_toy(self, caller: Caller) -> ToysAnswer:
        """Break a toy."""
        return ToysAnswer(count=self._toys.break_one())
