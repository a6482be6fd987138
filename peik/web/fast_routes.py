"""The way past the framework for the few paths that carry traffic: no router, and none of the layers that wrap every request.

What such a path answers, also to its mistakes, is what the framework would have made of the same endpoint.
"""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from peik.errors import Problem
from peik.web import responses
from peik.web.responses import Endpoint

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class FastRoutes:
    """An ASGI application before another one. `exact`: endpoints by their paths; `under`: by the beginning of a path, which
    ends with a slash, and whose one word after it is asked as the parameter that is named beside it."""

    def __init__(
        self, otherwise: App, *, exact: Mapping[str, Endpoint], under: Mapping[str, tuple[Endpoint, str]]
    ) -> None:
        self._otherwise = otherwise
        self._exact = exact
        self._under = under

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._found(scope) if scope["type"] == "http" else None
        if endpoint is None:
            await self._otherwise(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            response = await endpoint(request)
        except Problem as problem:
            response = responses.problem_response(problem)
        except HTTPException as error:
            response = await responses.on_http_error(request, error)
        except ClientDisconnect as gone:
            response = await responses.on_gone(request, gone)
        except Exception as surprise:
            # The server tells of it, as of any that an application lets through.
            await (await responses.on_surprise(request, surprise))(scope, receive, send)
            raise
        await send_response(send, response)

    def _found(self, scope: Scope) -> Endpoint | None:
        path: str = scope["path"]
        endpoint = self._exact.get(path)
        if endpoint is not None:
            return endpoint
        edge = path.rfind("/") + 1
        found = self._under.get(path[:edge])
        if found is None or edge == len(path):
            return None
        scope["path_params"] = {found[1]: path[edge:]}
        return found[0]


async def send_response(send: Send, response: Response) -> None:
    await send({"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers})
    await send({"type": "http.response.body", "body": response.body})
