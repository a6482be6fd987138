"""Errors of the REST door: RFC 9457 problem JSON with a stable code, one shape for all of them."""

import http

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from peik.errors import Problem, TooMany, Unavailable


def problem_response(problem: Problem) -> Response:
    headers = {}
    if isinstance(problem, Unavailable | TooMany):
        headers["Retry-After"] = str(problem.retry_after_s)
    if problem.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return _response(problem.status, problem.code, problem.detail, headers)


async def on_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return problem_response(error)


async def on_http_error(request: Request, error: Exception) -> Response:
    """What the framework itself refuses: no such path, wrong method."""
    assert isinstance(error, HTTPException)
    phrase = http.HTTPStatus(error.status_code).phrase
    code = phrase.lower().replace(" ", "_")
    return _response(error.status_code, code, f"{phrase}. The API is described at /docs.", dict(error.headers or {}))


async def on_gone(request: Request, error: Exception) -> Response:
    """The client broke off in the middle of its request: nobody reads this, and nothing was accepted."""
    return _response(400, "client_gone", "The request broke off before it was whole. Nothing was accepted.", {})


async def on_surprise(request: Request, error: Exception) -> Response:
    return surprise_response()


def surprise_response() -> Response:
    return _response(500, "surprise", "Something went wrong inside Peik; its log says what. Nothing was promised.", {})


def _response(status: int, code: str, detail: str, headers: dict[str, str]) -> Response:
    body = {
        "type": f"urn:peik:problem:{code}",
        "title": http.HTTPStatus(status).phrase,
        "status": status,
        "code": code,
        "detail": detail,
    }
    return Response(msgspec.json.encode(body), status, headers, media_type="application/problem+json")
