"""Pages: the people of the dashboard. Adding one, a role, a new password, signing out everywhere, removing."""

from starlette.requests import Request
from starlette.responses import Response

from peik.core.role import Role
from peik.doors.dashboard.board import Board, Page, Visitor
from peik.doors.dashboard.fields import Fields
from peik.doors.dashboard.reach import must_see_all
from peik.errors import BadInput


class PeoplePages:
    def __init__(self, board: Board) -> None:
        self._board = board
        self._people = board.people

    def table(self) -> tuple[Page, ...]:
        one = "/admin/people/{name}"
        return (
            ("GET", "/admin/people", self.show, Role.ADMIN, ""),
            ("POST", "/admin/people", self.add, Role.ADMIN, "people.add"),
            ("POST", f"{one}/role", self.set_role, Role.ADMIN, "people.role"),
            ("POST", f"{one}/password", self.set_password, Role.ADMIN, "people.password"),
            ("POST", f"{one}/sign-out", self.sign_out, Role.ADMIN, "people.sign_out"),
            ("POST", f"{one}/remove", self.remove, Role.ADMIN, "people.remove"),
        )

    async def show(self, request: Request, visitor: Visitor) -> Response:
        must_see_all(visitor)
        people = await self._people.everybody()
        return self._board.page(request, visitor, "people.html", people=people, roles=tuple(Role))

    async def add(self, request: Request, visitor: Visitor) -> Response:
        must_see_all(visitor)
        fields = await Fields.sent(request)
        person = await self._people.add(fields.need("name"), _role(fields), fields.secret("password"))
        self._board.note(request, target=person.name)
        return self._back(request, visitor, "people_added", person.name)

    async def set_role(self, request: Request, visitor: Visitor) -> Response:
        must_see_all(visitor)
        role = _role(await Fields.sent(request))
        person = await self._people.set_role(request.path_params["name"], role)
        return self._back(request, visitor, "people_changed", person.name)

    async def set_password(self, request: Request, visitor: Visitor) -> Response:
        must_see_all(visitor)
        password = (await Fields.sent(request)).secret("password")
        person = await self._people.set_password(request.path_params["name"], password)
        return self._back(request, visitor, "people_changed", person.name)

    async def sign_out(self, request: Request, visitor: Visitor) -> Response:
        must_see_all(visitor)
        person = await self._people.sign_out(request.path_params["name"])
        return self._back(request, visitor, "people_signed_out", person.name)

    async def remove(self, request: Request, visitor: Visitor) -> Response:
        must_see_all(visitor)
        name = request.path_params["name"]
        await self._people.remove(name)
        return self._back(request, visitor, "people_removed", name)

    def _back(self, request: Request, visitor: Visitor, said: str, name: str) -> Response:
        return self._board.back(request, visitor, "/admin/people", said=said, name=name)


def _role(fields: Fields) -> Role:
    try:
        return Role(fields.need("role"))
    except ValueError:
        raise BadInput(code="bad_role", detail=f"role is one of {', '.join(Role)}.") from None
