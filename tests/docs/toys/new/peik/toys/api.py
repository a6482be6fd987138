"""REST: toys."""

from starlette.requests import Request
from starlette.responses import Response

from peik.toys.service import ToyService
from peik.web.access import Access
from peik.web.openapi import Json, Operation, shape
from peik.web.responses import Route, json_response


class ToyRoutes:
    def __init__(self, toys: ToyService, access: Access) -> None:
        self._toys = toys
        self._access = access

    def table(self) -> tuple[Route, ...]:
        return (
            ("GET", "/v1/toys", self.get_toys, "getToys", "toys"),
            ("POST", "/v1/toys/break", self.post_break, "breakToy", "toys"),
        )

    async def get_toys(self, request: Request) -> Response:
        """How many toys there are."""
        self._access.admit(request, "read")
        return json_response({"count": self._toys.count})

    async def post_break(self, request: Request) -> Response:
        """Break a toy."""
        self._access.admit(request, "admin")
        return json_response({"count": self._toys.break_one()})


TOY_SCHEMAS: Json = {"Toys": shape(count={"type": "integer"})}

TOY_OPERATIONS: dict[str, Operation] = {
    "getToys": Operation(answers={200: "Toys"}),
    "breakToy": Operation(answers={200: "Toys"}),
}
