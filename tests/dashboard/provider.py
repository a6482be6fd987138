"""A little OpenID provider on a real port: it lets everybody in, checks what clients send, and signs tokens with keys of its own.
It can be told to lie in each way that a client has to notice. Tokens are made by hand, not by the library that reads them."""

import base64
import contextlib
import functools
import hashlib
import hmac
import json
import secrets
import time
import urllib.parse
from collections.abc import AsyncIterator
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from tests.dashboard.visiting import listening

CLIENT = "peik-of-tests"
SECRET = "a:secret with %41 in it"  # what has to be escaped before it goes into a header


def plain64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


class Signer:
    """A key pair with a name, for RS256 or ES256."""

    def __init__(self, kid: str, alg: str = "RS256") -> None:
        self.kid = kid
        self.alg = alg
        self._key: Any = (
            ec.generate_private_key(ec.SECP256R1())
            if alg == "ES256"
            else rsa.generate_private_key(public_exponent=65537, key_size=2048)
        )

    def jwk(self) -> dict[str, str]:
        numbers = self._key.public_key().public_numbers()
        if self.alg == "ES256":
            shown = {"kty": "EC", "crv": "P-256", "x": _big(numbers.x), "y": _big(numbers.y)}
        else:
            shown = {"kty": "RSA", "n": _big(numbers.n), "e": _big(numbers.e)}
        return {**shown, "kid": self.kid, "use": "sig", "alg": self.alg}

    def sign(self, head: dict[str, object], claims: dict[str, object]) -> str:
        signed = f"{_json64(head)}.{_json64(claims)}"
        return f"{signed}.{plain64(self._signature(signed.encode()))}"

    def _signature(self, data: bytes) -> bytes:
        if self.alg == "ES256":
            r, s = utils.decode_dss_signature(self._key.sign(data, ec.ECDSA(hashes.SHA256())))
            return r.to_bytes(32, "big") + s.to_bytes(32, "big")
        return bytes(self._key.sign(data, padding.PKCS1v15(), hashes.SHA256()))


@functools.cache
def _first() -> Signer:
    """Of every provider: a key takes longer to make than all that is said with it."""
    return Signer("one")


def _big(number: int) -> str:
    return plain64(number.to_bytes((number.bit_length() + 7) // 8, "big"))


def _json64(value: object) -> str:
    return plain64(json.dumps(value).encode())


class Provider:
    """`person` is who is signed in there. `lies` changes claims of ID tokens, `head` their header; None takes one out."""

    def __init__(self) -> None:
        self.url = ""
        self.person: dict[str, object] = {
            "sub": "0b1c", "preferred_username": "mina", "email": "mina@work.example", "email_verified": True,
            "groups": ["everybody", "peik-operators"],
        }  # fmt: skip
        self.userinfo: dict[str, object] = {}
        self.lies: dict[str, object] = {}
        self.head: dict[str, object] = {}
        self.unsigned = False
        self.signed_with_what_all_know = False
        self.signers = [_first()]
        self.hidden: list[Signer] = []  # that sign, and are not shown
        self.metadata: dict[str, object] = {}
        self.answers: dict[str, str] = {}  # more of what the browser brings back
        self.codes_are_good_for_ever = False
        self.refuses = False
        self.known_addresses: list[str] = []  # that browsers may come back to; empty: any
        self.asked: list[str] = []  # paths
        self._codes: dict[str, dict[str, str]] = {}

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/.well-known/openid-configuration", self._discovered),
                Route("/authorize", self._authorize),
                Route("/token", self._token, methods=["POST"]),
                Route("/keys", self._shown_keys),
                Route("/userinfo", self._userinfo),
                Route("/end", self._ended),
            ]
        )

    async def _discovered(self, request: Request) -> Response:
        self.asked.append(request.url.path)
        said = {
            "issuer": self.url,
            "authorization_endpoint": self.url + "/authorize",
            "token_endpoint": self.url + "/token",
            "jwks_uri": self.url + "/keys",
            "userinfo_endpoint": self.url + "/userinfo",
            "end_session_endpoint": self.url + "/end",
            "id_token_signing_alg_values_supported": ["RS256", "ES256", "none", "HS256"],
        }
        return JSONResponse({**said, **self.metadata})

    async def _authorize(self, request: Request) -> Response:
        query = dict(request.query_params)
        assert query["client_id"] == CLIENT, query
        assert query["response_type"] == "code"
        assert query["code_challenge_method"] == "S256"
        if self.known_addresses and not query["redirect_uri"].startswith(tuple(self.known_addresses)):
            return Response("Invalid parameter: redirect_uri", 400)
        back = {"state": query["state"], **self.answers}
        if self.refuses:
            back["error"] = "access_denied"
        else:
            back["code"] = secrets.token_urlsafe(16)
            self._codes[back["code"]] = query
        return RedirectResponse(f"{query['redirect_uri']}?{urllib.parse.urlencode(back)}", 303)

    async def _token(self, request: Request) -> Response:
        self.asked.append(request.url.path)
        form = dict(await request.form())
        given = request.headers.get("authorization", "").removeprefix("Basic ")
        shown = [urllib.parse.unquote(one) for one in base64.b64decode(given).decode().split(":")]
        if shown not in ([CLIENT, SECRET], [""]) or (shown == [""] and form.get("client_secret") != SECRET):
            return JSONResponse({"error": "invalid_client"}, 401)
        begun = self._codes.get(str(form["code"]))
        if not self.codes_are_good_for_ever:
            self._codes.pop(str(form["code"]), None)
        made = plain64(hashlib.sha256(str(form["code_verifier"]).encode()).digest())
        if begun is None or made != begun["code_challenge"] or form["redirect_uri"] != begun["redirect_uri"]:
            return JSONResponse({"error": "invalid_grant"}, 400)
        return JSONResponse({"access_token": "of userinfo", "token_type": "Bearer", "id_token": self._id_token(begun)})

    def _id_token(self, begun: dict[str, str]) -> str:
        now = int(time.time())
        usual = {"iss": self.url, "aud": CLIENT, "iat": now, "exp": now + 300, "nonce": begun["nonce"], **self.person}
        claims = {name: value for name, value in {**usual, **self.lies}.items() if value is not None}
        signer = (self.hidden or self.signers)[-1]
        head: dict[str, object] = {"alg": signer.alg, "typ": "JWT", "kid": signer.kid, **self.head}
        head = {name: value for name, value in head.items() if value is not None}
        if self.unsigned:
            return f"{_json64({**head, 'alg': 'none'})}.{_json64(claims)}."
        if self.signed_with_what_all_know:  # the public key, as if it were a shared secret
            signed = f"{_json64({**head, 'alg': 'HS256'})}.{_json64(claims)}"
            key = json.dumps(signer.jwk()).encode()
            return f"{signed}.{plain64(hmac.digest(key, signed.encode(), 'sha256'))}"
        return signer.sign(head, claims)

    async def _shown_keys(self, request: Request) -> Response:
        self.asked.append(request.url.path)
        others: list[dict[str, str]] = [
            {"kty": "of the future", "kid": "two"},
            {"kty": "oct", "k": "AAAA", "kid": "three"},
        ]
        return JSONResponse({"keys": [*others, *(signer.jwk() for signer in self.signers)]})

    async def _userinfo(self, request: Request) -> Response:
        assert request.headers["authorization"] == "Bearer of userinfo"
        return JSONResponse({"sub": self.person["sub"], **self.userinfo})

    async def _ended(self, request: Request) -> Response:
        return Response("You are signed out at the provider.")


@contextlib.asynccontextmanager
async def provider(host: str = "127.0.0.1") -> AsyncIterator[Provider]:
    """By another name of this machine it is another site to a browser."""
    one = Provider()
    async with listening(one.app()) as url:
        one.url = url.replace("127.0.0.1", host)
        yield one


def settings_of(one: Provider, **more: str) -> dict[str, str]:
    return {
        "oidc_issuer": one.url,
        "oidc_client_id": CLIENT,
        "oidc_client_secret": SECRET,
        "oidc_roles": "peik-admins=admin, peik-operators=operator",
        "oidc_name": "Work",
        **more,
    }
