"""What every answer of the dashboard says to the browser about safety, what cookies the browser shows, and whether a form came
from a page of ours."""

import urllib.parse

from starlette.requests import Request
from starlette.responses import Response

_POLICY = "; ".join(
    (
        "default-src 'self'",
        "base-uri 'none'",
        "object-src 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


def secured(response: Response) -> Response:
    for name, value in _HEADERS.items():
        response.headers[name] = value
    response.headers.setdefault("Cache-Control", "no-store")
    return response


def cookie_of(request: Request, name: str) -> str | None:
    """What the browser shows under a name of ours; of several, the first, which has the longest path (RFC 6265 §5.4).

    Not by Starlette or the standard library: `http.cookies` is quadratic before Python 3.11.10 and 3.12.6 (CVE-2024-7592). Our
    own values need no quotes, so that nothing has to be unescaped.
    """
    headers: list[tuple[bytes, bytes]] = request.scope["headers"]
    for header, value in headers:
        if header == b"cookie":
            for pair in value.decode("latin-1").split(";"):
                found, _, text = pair.partition("=")
                if found.strip() == name:
                    return text.strip()
    return None


def is_own_form(request: Request) -> bool:
    """Whether the browser says that a page of ours sent it. One that says nothing has only the hidden field to show."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = request.headers.get("origin")
    return origin is None or urllib.parse.urlsplit(origin).netloc == request.headers.get("host", "")
