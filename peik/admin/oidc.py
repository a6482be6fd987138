"""Signing in by OpenID Connect: sends a browser to the provider, and believes what comes back only if the provider signed it, for
us, for this browser, just now, and once.

The code flow with PKCE (RFC 7636). The server keeps nothing of a stranger: state, nonce and verifier are made of one random word
that the browser holds. Whom the provider names gets the role that the settings give to a value of his claim, or none.
"""

import asyncio
import base64
import hashlib
import hmac
import importlib.util
import re
import secrets
import urllib.parse
from collections.abc import Awaitable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from peik.admin.model import Role
from peik.admin.people import SignInTurns
from peik.clock import Clock
from peik.core.address import AddressReach
from peik.core.documents import DocumentStore, Filing
from peik.errors import INSTALL_FROM, Conflict, StartError
from peik.inbox.store import PushAnswer
from peik.settings.config import Config
from peik.settings.values import is_loopback

BACK = "/admin/sign-in/oidc/back"  # where the provider sends browsers
BEGUN_MS = 10 * 60_000  # so long somebody may take at the provider
LEEWAY_S = 60  # by which its clock and ours may differ
ISSUED_S = 10 * 60  # an ID token that is older was not made for this sign-in
KNOWN_S = 3600.0  # so long its endpoints and keys are believed without asking again
ANSWER_S = 10.0
ANSWER_BYTES_MAX = 256 * 1024
CODE_CHARS_MAX = 4096
AT_ONCE_MAX = 10
WAITING_MAX = 20
COLLECTION = "oidc_sign_ins"  # of those that came back: each does so once, on whichever node
_KEPT_MINUTES = 60
_NAME_CHARS_MAX = 64
_SUBJECT_CHARS_MAX = 255  # as OpenID Connect bounds it
# Signatures by a key pair only: with a shared secret anybody who knows our public side could sign, and "none" is no signature.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519")
_PLAIN_URL = re.compile(r"[!#-;=?-\[\]_a-z~]{1,2048}")
T = TypeVar("T")
_ROLES = {str(role): role for role in Role}
_LEVEL = {role: level for level, role in enumerate(Role)}


class OidcFailed(Exception):
    """Nobody is signed in. `code` is for people, in their language, `why` for the audit log. `who`: whom the provider named."""

    def __init__(self, code: str, why: str, *, who: str = "?") -> None:
        super().__init__(why)
        self.code = code
        self.why = why[:300]
        self.who = who


class OidcAsk(Protocol):
    """One HTTP request. It never raises for the network, and follows no redirect."""

    def __call__(
        self, verb: str, url: str, headers: Mapping[str, str], body: bytes, *, timeout_s: float, reach: AddressReach
    ) -> Awaitable[PushAnswer]: ...


class Begun(msgspec.Struct, frozen=True, kw_only=True):
    """`word` goes into a cookie, and the browser to `url`."""

    word: str
    url: str


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Whom the provider vouches for. `name` is for people; `subject` stays the same whatever he calls himself."""

    subject: str
    name: str
    role: Role
    next_url: str


class OidcLook(msgspec.Struct, frozen=True, kw_only=True):
    """What `peik doctor` asks. `refused_status`: with which the provider turns our browsers away; 0: it does not."""

    keys: int
    scopes: frozenset[str]  # that it says it has; often not all of them
    refused_status: int


class _Metadata(msgspec.Struct, frozen=True, kw_only=True):
    """What the provider says of itself (OpenID Connect Discovery), as far as it matters here."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str | None = None
    end_session_endpoint: str | None = None
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)
    id_token_signing_alg_values_supported: tuple[str, ...] = ("RS256",)
    authorization_response_iss_parameter_supported: bool = False
    scopes_supported: tuple[str, ...] = ()


class _Tokens(msgspec.Struct, frozen=True, kw_only=True):
    id_token: str
    access_token: str = ""

    def __repr__(self) -> str:
        return "_Tokens(…)"


class _JsonWebKeys(msgspec.Struct, frozen=True, kw_only=True):
    keys: list[dict[str, Any]]


def oidc_of(config: Config, documents: DocumentStore, clock: Clock, ask: OidcAsk) -> "Oidc | None":
    """None: nobody signs in so. Raises StartError."""
    check_oidc(config)
    return None if config.oidc_issuer is None else Oidc(config, documents, clock, ask)


def check_oidc(config: Config) -> None:
    """Whether the settings belong together. Raises StartError."""
    if config.oidc_issuer is None:
        if config.oidc_client_id or config.oidc_client_secret or config.oidc_roles:
            raise StartError(
                "Settings PEIK_OIDC_… are there without PEIK_OIDC_ISSUER. Name the provider, or take them out."
            )
        return
    if not config.oidc_client_id:
        raise StartError("PEIK_OIDC_ISSUER needs PEIK_OIDC_CLIENT_ID: what the provider calls this Peik.")
    if not config.oidc_roles or not config.oidc_claim:
        raise StartError(
            "PEIK_OIDC_ISSUER needs PEIK_OIDC_ROLES, or nobody could sign in by it: peik-admins=admin, *=viewer."
        )
    if importlib.util.find_spec("joserfc") is None:
        raise StartError(f"PEIK_OIDC_ISSUER needs a library that is not installed: pip install '{INSTALL_FROM}[oidc]'.")


class Oidc:
    def __init__(self, config: Config, documents: DocumentStore | None, clock: Clock, ask: OidcAsk) -> None:
        """Without documents it can be looked at, and nobody can come back."""
        assert config.oidc_issuer is not None
        assert config.oidc_client_id is not None
        self.name = config.oidc_name
        self.own_url = config.oidc_url
        self._issuer = config.oidc_issuer
        self._client_id = config.oidc_client_id
        self._secret = config.oidc_client_secret or ""
        self._scope = config.oidc_scope
        self._claim = config.oidc_claim
        self._roles = config.oidc_roles
        self._documents = documents
        self._clock = clock
        self._ask = ask
        self._turn = asyncio.Lock()
        self._turns = SignInTurns(at_once=AT_ONCE_MAX, waiting=WAITING_MAX)
        self._known: tuple[float, _Metadata] | None = None
        self._keys: tuple[float, list[dict[str, Any]]] | None = None

    @property
    def stamp(self) -> str:
        """Of what decides who is who: sign-ins of another one are over."""
        decides = (self._issuer, self._client_id, self._claim, *(f"{value}={role}" for value, role in self._roles))
        return hashlib.blake2b("\n".join(decides).encode(), digest_size=8).hexdigest()

    async def begin(self, *, back_url: str, next_url: str) -> Begun:
        """Raises OidcFailed, and Unavailable in a crowd."""
        async with self._turns.taken():
            metadata = await self._metadata()
        word = f"{secrets.token_urlsafe(32)}.{self._clock.wall_ms()}.{urllib.parse.quote(next_url, safe='')}"
        challenge = hashlib.sha256(_made(word, "verifier").encode()).digest()
        query = {
            "response_type": "code",
            "client_id": self._client_id,
            "redirect_uri": back_url,
            "scope": self._scope,
            "state": _made(word, "state"),
            "nonce": _made(word, "nonce"),
            "code_challenge": base64.urlsafe_b64encode(challenge).decode().rstrip("="),
            "code_challenge_method": "S256",
        }
        there = metadata.authorization_endpoint
        return Begun(word=word, url=f"{there}{'&' if '?' in there else '?'}{urllib.parse.urlencode(query)}")

    async def finish(self, word: str, answer: Mapping[str, str], *, back_url: str) -> Identity:
        """Who has come back, with the `word` of a cookie and the `answer` in the address. Raises OidcFailed, Unavailable in a
        crowd, StoreUnavailable."""
        began_ms, next_url = self._begun(word, answer)
        if answer.get("error"):
            raise OidcFailed("oidc_broken_off", f"the provider said {_shown(answer['error'])}")
        async with self._turns.taken():
            metadata = await self._metadata()
            # Of several providers one may hand a code of another on (RFC 9207).
            if answer.get("iss", self._issuer) != self._issuer:
                raise OidcFailed("oidc_not_believed", "the answer is of another issuer")
            if metadata.authorization_response_iss_parameter_supported and "iss" not in answer:
                raise OidcFailed("oidc_not_believed", "the answer does not say whose it is")
            code = answer.get("code", "")
            if not 0 < len(code) <= CODE_CHARS_MAX:
                raise OidcFailed("oidc_not_believed", "the answer holds no code")
            tokens = await self._redeem(metadata, code, verifier=_made(word, "verifier"), back_url=back_url)
            claims = await self._claims(metadata, tokens.id_token, nonce=_made(word, "nonce"))
            identity = await self._identity(metadata, claims, tokens, next_url=next_url)
        await self._use_up(word, began_ms)
        return identity

    def end_url(self, *, back_url: str) -> str | None:
        """Where somebody signs out at the provider, if that is known just now."""
        there = None if self._known is None else self._known[1].end_session_endpoint
        if there is None or not _is_plain(there):
            return None
        query = urllib.parse.urlencode({"client_id": self._client_id, "post_logout_redirect_uri": back_url})
        return f"{there}{'&' if '?' in there else '?'}{query}"

    async def look(self, *, back_url: str) -> OidcLook:
        """Asks what a sign-in asks, up to where somebody would have to sign in. Raises OidcFailed."""
        metadata = await self._metadata()
        shown = await self._read(metadata.jwks_uri, _JsonWebKeys)
        there = (await self.begin(back_url=back_url, next_url="/admin")).url
        page = await self._ask("GET", there, {"Accept": "text/html"}, b"", timeout_s=ANSWER_S, reach=self._reach(there))
        return OidcLook(
            keys=sum(_is_for_signing(key) for key in shown.keys),
            scopes=frozenset(metadata.scopes_supported),
            refused_status=page.status if page.status >= 400 else 0,
        )

    # ---- the browser ----

    def _begun(self, word: str, answer: Mapping[str, str]) -> tuple[int, str]:
        """When it was begun, and where it leads. The state holds all of the word, so that nobody has changed a part of it."""
        _, _, rest = word.partition(".")
        began, _, next_url = rest.partition(".")
        is_same = hmac.compare_digest(_made(word, "state").encode(), answer.get("state", "").encode())
        if not word or not is_same or not began.isdecimal():
            raise OidcFailed("oidc_not_begun", "this browser has not begun it")
        age_ms = self._clock.wall_ms() - int(began)
        if not 0 <= age_ms <= BEGUN_MS:
            raise OidcFailed("oidc_not_begun", "it was begun too long ago")
        return int(began), urllib.parse.unquote(next_url)

    async def _use_up(self, word: str, began_ms: int) -> None:
        """Each sign-in once, though the provider may take a code twice. Only whom it vouches for makes us write anything."""
        assert self._documents is not None
        key = f"{began_ms // 60_000:010d}:{_made(word, 'used')}"
        try:
            await self._documents.file([Filing(collection=COLLECTION, key=key, body="{}", version=0)])
        except Conflict:
            raise OidcFailed("oidc_not_begun", "it was used already") from None
        oldest = self._clock.wall_ms() // 60_000 - _KEPT_MINUTES
        await self._documents.clear_collection(COLLECTION, until=f"{oldest:010d}", limit=1000)

    # ---- the provider ----

    async def _metadata(self) -> _Metadata:
        async with self._turn:  # of a crowd, one asks
            if self._known is not None and self._clock.mono() - self._known[0] < KNOWN_S:
                return self._known[1]
            there = self._issuer.rstrip("/") + "/.well-known/openid-configuration"
            found = await self._read(there, _Metadata)
            if found.issuer != self._issuer:
                why = f"the provider calls itself {_shown(found.issuer)}, and PEIK_OIDC_ISSUER is another"
                raise OidcFailed("oidc_unreachable", why)
            for url in (found.authorization_endpoint, found.token_endpoint, found.jwks_uri):
                self._check_url(url)
            self._known = self._clock.mono(), found
            return found

    async def _redeem(self, metadata: _Metadata, code: str, *, verifier: str, back_url: str) -> _Tokens:
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": back_url,
            "code_verifier": verifier,
            "client_id": self._client_id,
        }
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        methods = metadata.token_endpoint_auth_methods_supported
        if self._secret and "client_secret_basic" not in methods and "client_secret_post" in methods:
            fields["client_secret"] = self._secret
        elif self._secret:
            both = ":".join(urllib.parse.quote(one, safe="") for one in (self._client_id, self._secret))
            headers["Authorization"] = f"Basic {base64.b64encode(both.encode()).decode()}"
        body = urllib.parse.urlencode(fields).encode()
        return await self._read(metadata.token_endpoint, _Tokens, headers=headers, body=body)

    async def _claims(self, metadata: _Metadata, token: str, *, nonce: str) -> dict[str, Any]:
        """What the ID token says, once all of OpenID Connect Core 3.1.3.7 holds."""
        from joserfc import errors, jws, jwt

        allowed = [name for name in ALGORITHMS if name in metadata.id_token_signing_alg_values_supported]
        try:
            key = await self._key(metadata, jws.extract_compact(token.encode()).headers())
            registry = jws.JWSRegistry(algorithms=allowed or ["RS256"], strict_check_header=False)
            claims = dict(jwt.decode(token, key, algorithms=allowed or ["RS256"], registry=registry).claims)
            now_s = self._clock.wall_ms() // 1000
            jwt.JWTClaimsRegistry(
                now=now_s,
                leeway=LEEWAY_S,
                iss={"essential": True, "value": self._issuer},
                aud={"essential": True, "value": self._client_id},
                sub={"essential": True},
                exp={"essential": True},
                iat={"essential": True},
                nonce={"essential": True, "value": nonce},
            ).validate(claims)
        except (errors.JoseError, ValueError, TypeError) as error:
            raise OidcFailed(
                "oidc_not_believed", f"its ID token: {type(error).__name__} {_shown(str(error))}"
            ) from None
        if claims["iat"] < now_s - ISSUED_S - LEEWAY_S:
            raise OidcFailed("oidc_not_believed", "its ID token was issued too long ago")
        is_for_others = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
        if claims.get("azp", None if is_for_others else self._client_id) != self._client_id:
            raise OidcFailed("oidc_not_believed", "its ID token is for another client")
        if not 0 < len(claims["sub"]) <= _SUBJECT_CHARS_MAX:
            raise OidcFailed("oidc_not_believed", "its ID token does not say who it is about")
        return claims

    async def _key(self, metadata: _Metadata, header: Mapping[str, Any]) -> Any:
        """The key that this header names. One that is not known may be new: then the provider is asked once more."""
        from joserfc import jwk

        fresh_at = self._clock.mono()
        for _ in range(2):
            if self._keys is None or fresh_at - self._keys[0] >= KNOWN_S:
                found = await self._read(metadata.jwks_uri, _JsonWebKeys)
                self._keys = self._clock.mono(), found.keys[:100]
            meant = [key for key in self._keys[1] if _is_meant(key, header)]
            if len(meant) == 1:
                return jwk.import_key(meant[0])
            if self._keys[0] >= fresh_at:
                break
            self._keys = None
        raise OidcFailed("oidc_not_believed", "its ID token is signed with a key that the provider does not show")

    async def _identity(
        self, metadata: _Metadata, claims: dict[str, Any], tokens: _Tokens, *, next_url: str
    ) -> Identity:
        values = list(_values(claims, self._claim))
        if not values and metadata.userinfo_endpoint is not None and tokens.access_token:
            # Many providers keep ID tokens small, and say the rest here.
            headers = {"Authorization": f"Bearer {tokens.access_token}"}
            more = await self._read(metadata.userinfo_endpoint, dict[str, Any], headers=headers)
            if more.get("sub") != claims["sub"]:
                raise OidcFailed("oidc_not_believed", "its userinfo is about somebody else")
            claims = {**more, **claims}
            values = list(_values(claims, self._claim))
        if self._claim == "email" and claims.get("email_verified") not in (True, "true"):
            values = []  # anybody can write any address
        name = _name_of(claims)
        roles = [_ROLES[role] for value, role in self._roles if value == "*" or value in values]
        if not roles:
            shown = _shown(", ".join(values)) or "nothing"
            raise OidcFailed(
                "oidc_no_role", f"{self._claim} holds {shown}, sub {_shown(claims['sub'])}", who=f"oidc {name}"
            )
        role = max(roles, key=_LEVEL.__getitem__)
        return Identity(subject=f"{self._issuer} {claims['sub']}", name=f"oidc {name}", role=role, next_url=next_url)

    async def _read(self, url: str, kind: type[T], *, headers: Mapping[str, str] | None = None, body: bytes = b"") -> T:
        """Raises OidcFailed. What was sent or answered may be secret, and is not told."""
        self._check_url(url)
        asked = {"Accept": "application/json", **(headers or {})}
        verb = "POST" if body else "GET"
        answer = await self._ask(verb, url, asked, body, timeout_s=ANSWER_S, reach=self._reach(url))
        place = _shown(urllib.parse.urlsplit(url).netloc)
        if answer.status != 200:
            why = f"status {answer.status}{_error_in(answer.body)}" if answer.status else _shown(answer.why)
            code = "oidc_not_believed" if body and 400 <= answer.status < 500 else "oidc_unreachable"
            raise OidcFailed(code, f"{place}: {why}")
        try:
            if len(answer.body) > ANSWER_BYTES_MAX:
                raise ValueError
            return msgspec.json.decode(answer.body, type=kind)
        except ValueError:
            raise OidcFailed("oidc_unreachable", f"{place}: its answer is not what OpenID Connect asks for") from None

    def _check_url(self, url: str) -> None:
        """Whereto the provider sends us and browsers. Plain HTTP only where the provider itself runs on this machine."""
        parts = urllib.parse.urlsplit(url) if _is_plain(url) else None
        is_here = parts is not None and is_loopback(parts.hostname or "") and self._issuer.startswith("http:")
        if parts is None or not (parts.scheme == "https" or (parts.scheme == "http" and is_here)):
            raise OidcFailed("oidc_unreachable", f"the provider names an address that is not https: {_shown(url)}")

    def _reach(self, url: str) -> AddressReach:
        """The provider may stand in our own network, and must not send us around in it: other hosts are of the open internet."""
        is_own = urllib.parse.urlsplit(url).netloc == urllib.parse.urlsplit(self._issuer).netloc
        return AddressReach.INSIDE if is_own else AddressReach.PUBLIC


def _made(word: str, use: str) -> str:
    """State, nonce and verifier: nobody who sees one of them knows another, or the word."""
    digest = hashlib.blake2b(word.encode(), key=use.encode(), digest_size=32, person=b"peik oidc").digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _is_plain(url: str) -> bool:
    return _PLAIN_URL.fullmatch(url) is not None and "@" not in urllib.parse.urlsplit(url).netloc


def _is_meant(key: Mapping[str, Any], header: Mapping[str, Any]) -> bool:
    """By its name, if the token names one; else by what it is for."""
    is_named = "kid" not in header or key.get("kid") == header["kid"]
    return _is_for_signing(key) and is_named and key.get("alg", header.get("alg")) == header.get("alg")


def _is_for_signing(key: Mapping[str, Any]) -> bool:
    return key.get("kty") in ("RSA", "EC", "OKP") and key.get("use", "sig") == "sig"


def _values(claims: Mapping[str, Any], path: str) -> Iterator[str]:
    """What a claim holds: a text, a list of texts, or the names in an object. It may have dots in its name, or lie deeper."""
    found: Any = claims
    for part in (path,) if path in claims else path.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    if isinstance(found, str):
        yield found
    elif isinstance(found, list | Mapping):
        yield from (value for value in found if isinstance(value, str))


def _name_of(claims: Mapping[str, Any]) -> str:
    """What people call him. Nothing that cannot be seen, which could make one name look like another."""
    is_verified = claims.get("email_verified") in (True, "true")
    for name in (claims.get("email") if is_verified else None, claims.get("preferred_username"), claims["sub"]):
        if isinstance(name, str) and name.strip() and name.isprintable():
            return name.strip()[:_NAME_CHARS_MAX]
    return "?"


def _shown(text: str) -> str:
    """Words of others in our log: short, and only what can be seen."""
    return "".join(one if one.isprintable() else "?" for one in text[:150])


def _error_in(body: bytes) -> str:
    """What an OAuth error says: `invalid_grant`."""
    try:
        said = msgspec.json.decode(body[:10_000], type=dict[str, Any]).get("error")
    except ValueError:
        return ""
    return f", {_shown(said)}" if isinstance(said, str) else ""
