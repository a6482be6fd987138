"""The way past the framework: whoever takes it is answered as the framework would have answered him."""

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from peik.errors import Denied, Problem, TooMany
from peik.web import responses
from peik.web.routes import App, FastRoutes

Heard = tuple[list[MutableMapping[str, Any]], str | None]  # what was sent, and what the server would tell of


async def post(request: Request) -> Response:
    match (await request.body()).decode():
        case "":
            return JSONResponse({"who": request.path_params.get("name")}, 202)
        case "denied":
            raise Denied(code="no_key", detail="Show a key.")
        case "often":
            raise TooMany(code="too_many", detail="Wait.", wait_s=7)
        case "verb":
            raise HTTPException(405, headers={"Allow": "POST"})
        case "gone":
            raise ClientDisconnect
        case surprise:
            raise ZeroDivisionError(surprise)


def framework() -> Starlette:
    app = Starlette()
    app.add_exception_handler(Problem, responses.on_problem)
    app.add_exception_handler(HTTPException, responses.on_http_error)
    app.add_exception_handler(ClientDisconnect, responses.on_gone)
    app.add_exception_handler(Exception, responses.on_surprise)
    app.add_route("/post", post, methods=["POST"])
    app.add_route("/under/{name}", post, methods=["POST"])
    return app


async def nobody(scope: object, receive: object, send: object) -> None:
    raise AssertionError("the framework was asked")


def ask(app: App, path: str, body: str = "", kind: str = "http") -> Heard:
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": body.encode(), "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(dict(message))

    async def go() -> str | None:
        scope = {"type": kind, "method": "POST", "path": path, "headers": [], "query_string": b"", "scheme": "http"}
        try:
            await app(scope, receive, send)
        except ZeroDivisionError as error:
            return str(error)
        return None

    told = asyncio.run(go())
    for message in sent:
        message.pop("more_body", None)
    return sent, told


@pytest.mark.parametrize("body", ["", "denied", "often", "verb", "gone", "something else"])
@pytest.mark.parametrize("path", ["/post", "/under/a", "/under/b%2F"])
def test_the_answer_is_the_frameworks(path: str, body: str) -> None:
    shortcuts = FastRoutes(nobody, exact={"/post": post}, under={"/under/": (post, "name")})
    assert ask(shortcuts, path, body) == ask(framework(), path, body)


@pytest.mark.parametrize("path", ["/", "/post/", "/posts", "/under", "/under/", "/under/a/b", "/under/a/"])
def test_every_other_path_is_the_frameworks(path: str) -> None:
    app = framework()
    shortcuts = FastRoutes(app, exact={"/post": post}, under={"/under/": (post, "name")})
    heard = ask(shortcuts, path)
    assert heard == ask(framework(), path)
    assert heard[0][0]["status"] in (307, 404)
