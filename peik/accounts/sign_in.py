"""Signing an account in: by phone, code and password, or by QR. The caller holds nothing but the session's id.

Every step connects, does one thing and leaves. What the next step needs lies sealed in the session's record, so that a step
can follow on another node, or after a restart. No code, password or key is ever logged or shown.
"""

import asyncio
import unicodedata
from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec

from peik.accounts.client import AccountClient, ClientError, ClientFactory, Me, Qr, Trouble
from peik.accounts.registry import Registry, half_context, normal_phone, proxy_context, secret_context
from peik.archive.store import Session, SessionState
from peik.clock import Clock
from peik.errors import BadInput, Conflict, Problem, Unavailable
from peik.secrets.vault import Vault

# A sign-in that is half done: what lies sealed in its record between two steps, and that one step is made at a time.


CODES_AN_HOUR_MAX = 3
STEP_S = 90.0  # a step takes a few seconds; a node that died in one holds up the others no longer than this
_HOUR_MS = 3_600_000

SIGNED_IN = frozenset({SessionState.ACTIVE, SessionState.PAUSED})
UNSIGNED = frozenset({SessionState.NEW, SessionState.CODE_SENT, SessionState.PASSWORD_NEEDED})


class PendingSignIn(msgspec.Struct, kw_only=True):
    """What lies in the record while somebody is being signed in, sealed."""

    key: str
    phone: str | None = None
    code_hash: str | None = None
    tries: int = 0
    codes_at_ms: list[int] = []
    busy_until_ms: int = 0  # some node is at a step: another on the same key at once would cost the session


class PendingSignIns:
    """Of all sessions. Other nodes may be at the same sign-in: what is claimed here is closed to them."""

    def __init__(self, registry: Registry, vault: Vault, clock: Clock) -> None:
        self._registry = registry
        self._vault = vault
        self._clock = clock
        self._codes_at_ms: dict[str, list[int]] = {}  # by phone, over all its sessions
        self._at_work: set[str] = set()
        self._claimed: set[str] = set()

    def alone(self, session_id: str) -> "_Alone":
        return _Alone(self._at_work, session_id, self._let_go)

    def of(self, session: Session) -> PendingSignIn | None:
        """None: no sign-in was begun."""
        if session.secret is None or session.state in SIGNED_IN:
            return None
        try:
            text = self._vault.open(session.secret, context=half_context(session.session_id))
        except Unavailable:
            return None  # of an earlier life of this session, or sealed with a key that is gone
        return msgspec.json.decode(text, type=PendingSignIn)

    async def put(
        self,
        session_id: str,
        half: PendingSignIn,
        *,
        state: SessionState,
        state_reason: str,
        state_until_ms: int | None,
    ) -> Session:
        half.busy_until_ms = 0
        sealed = self._sealed(session_id, half)
        return await self._registry.change(
            session_id,
            lambda old: msgspec.structs.replace(
                old, secret=sealed, state=state, state_reason=state_reason, state_until_ms=state_until_ms
            ),
        )

    async def claim(self, seen: Session, half: PendingSignIn) -> Session:
        """Store the half before it is used, if nobody changed the session since: of two nodes one goes on. Raises Conflict.
        It is let go of at the end of the step, see `_Alone`."""
        now_ms = self._clock.wall_ms()
        if half.busy_until_ms > now_ms:
            raise Conflict(code="session_busy", detail="Another step of this sign-in is under way.")
        half.busy_until_ms = now_ms + int(STEP_S * 1000)
        sealed = self._sealed(seen.session_id, half)

        def claimed(old: Session) -> Session:
            if old.version != seen.version:
                raise Conflict(code="session_busy", detail="Another step of this sign-in is under way.")
            return msgspec.structs.replace(old, secret=sealed)

        session = await self._registry.change(seen.session_id, claimed)
        self._claimed.add(seen.session_id)
        return session

    async def _let_go(self, session_id: str) -> None:
        if session_id not in self._claimed:
            return
        self._claimed.discard(session_id)

        def freed(old: Session) -> Session:
            half = self.of(old)
            if half is None or not half.busy_until_ms:
                return old
            half.busy_until_ms = 0
            return msgspec.structs.replace(old, secret=self._sealed(session_id, half))

        with suppress(Problem):  # then its time runs out
            await self._registry.change(session_id, freed)

    def _sealed(self, session_id: str, half: PendingSignIn) -> bytes:
        return self._vault.seal(msgspec.json.encode(half).decode(), context=half_context(session_id))

    async def due(self, session_id: str, state: SessionState) -> tuple[Session, PendingSignIn]:
        """Raises Conflict if the session is not in this state."""
        session = await self._registry.need(session_id)
        half = self.of(session)
        if session.state is not state or half is None:
            raise Conflict(code="not_due", detail=f"The session is {session.state}: nothing of the kind is waited for.")
        return session, half

    async def empty(self, session_id: str, reason: str | None) -> Session:
        """Nothing stays but how often a code was asked for."""

        def emptied(old: Session) -> Session:
            half = self.of(old)
            sealed = None
            if half is not None and half.codes_at_ms:
                sealed = self._sealed(session_id, PendingSignIn(key="", phone=half.phone, codes_at_ms=half.codes_at_ms))
            return msgspec.structs.replace(
                old, state=SessionState.NEW, state_reason=reason, state_until_ms=None, secret=sealed
            )

        return await self._registry.change(session_id, emptied)

    async def count_try(self, session: Session, half: PendingSignIn, tries_max: int, words: str) -> PendingSignIn:
        """Counted before it is made: a crash in between gives nobody another try. Raises BadInput after the last."""
        if half.tries >= tries_max:
            await self.empty(session.session_id, words)
            raise BadInput(code="too_many_tries", detail=f"{words} Begin again.")
        half.tries += 1
        await self.claim(session, half)
        return half

    def count_code(self, phone: str, half: PendingSignIn) -> None:
        """Telegram bans who asks for many codes; we stop long before."""
        now_ms = self._clock.wall_ms()
        known = {*self._codes_at_ms.get(phone, ()), *half.codes_at_ms}
        recent = sorted(at_ms for at_ms in known if now_ms - at_ms < _HOUR_MS)
        if len(recent) >= CODES_AN_HOUR_MAX:
            wait_s = (recent[0] + _HOUR_MS - now_ms) // 1000
            raise Conflict(code="too_many_codes", detail=f"{len(recent)} codes within an hour; the next in {wait_s} s.")
        half.codes_at_ms = self._codes_at_ms[phone] = [*recent, now_ms]


class _Alone:
    """One step at a time in this process; what was claimed against other nodes is let go of at its end."""

    def __init__(self, at_work: set[str], session_id: str, let_go: Callable[[str], Awaitable[None]]) -> None:
        self._at_work = at_work
        self._session_id = session_id
        self._let_go = let_go

    async def __aenter__(self) -> None:
        if self._session_id in self._at_work:
            raise Conflict(code="session_busy", detail="Another step of this sign-in is under way.")
        self._at_work.add(self._session_id)

    async def __aexit__(self, *error: object) -> None:
        try:
            await self._let_go(self._session_id)
        finally:
            self._at_work.discard(self._session_id)


CODE_S = 300.0
CODE_TRIES_MAX = 5
PASSWORD_TRIES_MAX = 5
SIGN_OFF_S = 20.0
QR_FRESH_MS = 10_000
QR_S = 300.0  # a person gets this long to scan one of the pictures

_FATAL = frozenset({Trouble.PHONE_BANNED, Trouble.NOT_REGISTERED, Trouble.BAD_PHONE, Trouble.REVOKED})


class SignInSteps:
    """Each method answers the session as it stands after the step. They raise Problems: BadInput for a wrong code,
    Conflict for a step that is not due, Unavailable if Telegram cannot be reached (then the step may be repeated)."""

    def __init__(
        self,
        registry: Registry,
        vault: Vault,
        clients: ClientFactory,
        clock: Clock,
        *,
        on_signed_in: Callable[[Session], Awaitable[None]] | None = None,
        connect_turn: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`connect_turn` returns when one more account may connect: Telegram blames addresses, too."""
        self._registry = registry
        self._vault = vault
        self._clients = clients
        self._clock = clock
        self._halves = PendingSignIns(registry, vault, clock)
        self._scans: dict[str, _Scan] = {}
        self._on_signed_in = on_signed_in
        self._connect_turn = connect_turn

    async def begin(self, session_id: str, phone: str | None = None, *, by_sms: bool = False) -> Session:
        """Telegram sends a code to this phone, or to that of the session."""
        async with self._halves.alone(session_id):
            session = await self._to_be_signed_in(session_id)
            number = normal_phone(phone) if phone is not None else session.phone
            if number is None:
                raise BadInput(code="no_phone", detail="Give the phone number to sign in with.")
            if number != session.phone:
                session = await self._registry.update_session_phone(session_id, number)
            half = self._halves.of(session)
            half = half if half is not None and half.phone == number else PendingSignIn(key="", phone=number)
            self._halves.count_code(number, half)
            session = await self._halves.claim(session, half)
            client, me = await self._connected(session, half.key or None)
            try:
                if me is not None:
                    return await self._left_signed_in(session_id, me, client)
                sent = await client.send_code(number, by_sms=by_sms)
                half.key, half.code_hash, half.tries = client.secret(), sent.code_hash, 0
            except ClientError as error:
                await self._stumble(session, error)
                raise problem_of(error) from None
            finally:
                await _leave(client)
            return await self._halves.put(
                session_id,
                half,
                state=SessionState.CODE_SENT,
                state_reason=f"Telegram sent a code ({sent.way}).",
                state_until_ms=self._clock.wall_ms() + int(CODE_S * 1000),
            )

    async def give_code(self, session_id: str, code: str) -> Session:
        """Active, or PASSWORD_NEEDED if the account has one."""
        digits = normal_code(code)
        async with self._halves.alone(session_id):
            session, half = await self._halves.due(session_id, SessionState.CODE_SENT)
            if half.phone is None or half.code_hash is None or self._is_late(session):
                await self._halves.empty(session_id, "The code was not given in time.")
                raise BadInput(code="code_expired", detail="The code is too old; ask for another.")
            half = await self._halves.count_try(session, half, CODE_TRIES_MAX, "Too many wrong codes.")
            phone, code_hash = half.phone, half.code_hash
            assert phone is not None, "looked at above"
            assert code_hash is not None, "looked at above"
            return await self._step(session, half, lambda client: client.sign_in(phone, digits, code_hash))

    async def give_password(self, session_id: str, password: str) -> Session:
        async with self._halves.alone(session_id):
            session, half = await self._halves.due(session_id, SessionState.PASSWORD_NEEDED)
            half = await self._halves.count_try(session, half, PASSWORD_TRIES_MAX, "Too many wrong passwords.")
            return await self._step(session, half, lambda client: client.give_password(password))

    async def qr(self, session_id: str) -> Qr:
        """A picture to be scanned by a device that is signed in. Ask again when it is over; what became of it is in the
        session's state."""
        await self._scanned(session_id)
        scan = self._scans.get(session_id)
        if scan is None:
            async with self._halves.alone(session_id):
                session = await self._to_be_signed_in(session_id)
                client, _ = await self._connected(session, None)
                scan = self._scans[session_id] = _Scan(client)
        if scan.qr is not None and scan.qr.expires_at_ms - self._clock.wall_ms() > QR_FRESH_MS:
            return scan.qr  # who shows it may ask every second; Telegram is not asked so often
        try:
            qr = scan.qr = await scan.client.qr()
        except ClientError as error:
            if scan.is_scanned:  # meanwhile: this connection has done its work
                return await self.qr(session_id)
            await self._end_scan(session_id)
            raise problem_of(error) from None
        if scan.task is None:
            scan.task = asyncio.create_task(self._await_scan(session_id, scan), name=f"scan for {session_id}")
        return qr

    async def cancel(self, session_id: str) -> Session:
        """Nothing of a sign-in that was begun stays. Raises Conflict if somebody is signed in."""
        await self._end_scan(session_id)
        async with self._halves.alone(session_id):
            session = await self._to_be_signed_in(session_id)
            half = self._halves.of(session)
            if session.state is SessionState.PASSWORD_NEEDED and half is not None:
                await self._sign_off(session, half.key)
            return await self._halves.empty(session_id, None)

    async def close(self) -> None:
        for session_id in tuple(self._scans):
            await self._end_scan(session_id)

    # One step.

    async def _step(
        self, session: Session, half: PendingSignIn, act: Callable[[AccountClient], Awaitable[Me]]
    ) -> Session:
        client, me = await self._connected(session, half.key)
        try:
            # Somebody there already: Telegram said yes to an earlier try, and Peik died before it was stored.
            me = me or await act(client)
            return await self._left_signed_in(session.session_id, me, client)
        except ClientError as error:
            if error.trouble is Trouble.PASSWORD_NEEDED:
                half.key, half.tries = client.secret(), 0
                return await self._halves.put(
                    session.session_id,
                    half,
                    state=SessionState.PASSWORD_NEEDED,
                    state_reason=error.words,
                    state_until_ms=None,
                )
            await self._stumble(session, error)
            raise problem_of(error) from None
        finally:
            await _leave(client)

    async def _left_signed_in(self, session_id: str, me: Me, client: AccountClient) -> Session:
        """Disconnected first: whoever reads that it is active connects at once, and the same key must never be used twice."""
        secret = client.secret()
        await _leave(client)
        try:
            return await self._signed_in(session_id, me, secret)
        except Conflict as conflict:
            if conflict.code == "phone_taken":  # this will not change by itself
                await self._sign_off(await self._registry.need(session_id), secret)
                await self._halves.empty(session_id, conflict.detail)
            raise

    async def _sign_off(self, session: Session, key: str) -> None:
        """Nobody keeps this key: at Telegram it shall not stay in the account's list of devices. As far as Telegram can be
        reached; its owner can end it there, too."""
        with suppress(ClientError, Problem, TimeoutError):
            async with asyncio.timeout(SIGN_OFF_S):
                client, _ = await self._connected(session, key)
                try:
                    await client.log_out()
                finally:
                    await _leave(client)

    async def _signed_in(self, session_id: str, me: Me, secret: str) -> Session:
        sealed = self._vault.seal(secret, context=secret_context(session_id))
        session = await self._registry.change(
            session_id,
            lambda old: msgspec.structs.replace(
                old,
                phone=me.phone or old.phone,
                user_id=me.user_id,
                username=me.username,
                state=SessionState.ACTIVE,
                state_reason=None,
                state_until_ms=None,
                is_active=True,
                secret=sealed,
                file=None,
                active_at_ms=self._clock.wall_ms(),
            ),
        )
        if self._on_signed_in is not None:
            await self._on_signed_in(session)
        return session

    async def _stumble(self, session: Session, error: ClientError) -> None:
        """What an error means for the session. Most mean nothing: the step may be tried again."""
        if error.trouble is Trouble.FLOOD:
            until_ms = self._clock.wall_ms() + int(error.wait_s * 1000)
            await self._set_state(session.session_id, SessionState.FLOOD_WAIT, error.words, until_ms)
        elif error.trouble in _FATAL:
            if error.trouble is Trouble.REVOKED:
                await self._halves.empty(
                    session.session_id, error.words
                )  # the key is dead: the next step makes another
            await self._set_state(session.session_id, SessionState.FAILED, error.words, None)
        elif error.trouble is Trouble.CODE_EXPIRED:
            await self._halves.empty(session.session_id, error.words)

    async def _set_state(self, session_id: str, state: SessionState, reason: str, until_ms: int | None) -> Session:
        return await self._registry.change(
            session_id,
            lambda old: msgspec.structs.replace(old, state=state, state_reason=reason, state_until_ms=until_ms),
        )

    # By QR.

    async def _await_scan(self, session_id: str, scan: "_Scan") -> None:
        try:
            me = await scan.client.qr_scanned(timeout_s=QR_S)
            scan.is_scanned = me is not None
            if me is not None:
                await self._keep_scanned(session_id, me, scan.client)
        except ClientError as error:
            if error.trouble is Trouble.PASSWORD_NEEDED:
                scan.is_scanned = True
                half = PendingSignIn(key=scan.client.secret())
                await self._halves.put(
                    session_id, half, state=SessionState.PASSWORD_NEEDED, state_reason=error.words, state_until_ms=None
                )
            else:
                await self._set_state(session_id, SessionState.NEW, error.words, None)
        except Problem as problem:  # the archive did not take it; the person scans once more
            with suppress(Problem):
                await self._set_state(session_id, SessionState.NEW, problem.detail, None)
        finally:
            self._scans.pop(session_id, None)
            await _leave(scan.client)

    async def _keep_scanned(self, session_id: str, me: Me, client: AccountClient) -> None:
        """What lies in the record is enough to go on with a sign-in by code. Of a QR code nothing lies there, so that a key
        which could not be stored is of no use to anybody."""
        secret = client.secret()
        try:
            await self._left_signed_in(session_id, me, client)
        except Problem as problem:
            if not isinstance(problem, Conflict) or problem.code != "phone_taken":
                await self._sign_off(await self._registry.need(session_id), secret)
            raise

    async def _scanned(self, session_id: str) -> None:
        """What somebody has scanned is being stored: until it is, so that no one cuts it off in the middle."""
        scan = self._scans.get(session_id)
        if scan is not None and scan.is_scanned and scan.task is not None:
            await asyncio.wait({scan.task})

    async def _end_scan(self, session_id: str) -> None:
        await self._scanned(session_id)
        scan = self._scans.pop(session_id, None)
        if scan is None:
            return
        if scan.task is not None:
            scan.task.cancel()
            await asyncio.gather(scan.task, return_exceptions=True)
        await _leave(scan.client)

    async def _to_be_signed_in(self, session_id: str) -> Session:
        session = await self._registry.need(session_id)
        if session.state in SIGNED_IN:
            raise Conflict(code="signed_in", detail="Somebody is signed in already. Sign out first.")
        if session.state is SessionState.FLOOD_WAIT and (session.state_until_ms or 0) > self._clock.wall_ms():
            raise Conflict(code="flood", detail=session.state_reason or "Telegram asks to wait.")
        return session

    def _is_late(self, session: Session) -> bool:
        return session.state_until_ms is not None and self._clock.wall_ms() >= session.state_until_ms

    async def _connected(self, session: Session, key: str | None) -> tuple[AccountClient, Me | None]:
        proxy = None
        if session.proxy is not None:
            proxy = self._vault.open(session.proxy, context=proxy_context(session.session_id))
        client = self._clients(
            session_id=session.session_id, agent_id=session.agent_id, secret=key, file=None, proxy=proxy
        )
        if self._connect_turn is not None:
            await self._connect_turn()
        try:
            return client, await client.connect()
        except ClientError as error:
            if key:
                await self._stumble(session, error)
            raise problem_of(error) from None


class _Scan:
    """A QR code that somebody may be looking at."""

    def __init__(self, client: AccountClient) -> None:
        self.client = client
        self.task: asyncio.Task[None] | None = None
        self.is_scanned = False
        self.qr: Qr | None = None  # as it was given last


async def _leave(client: AccountClient) -> None:
    with suppress(ClientError):  # we are done with it either way
        await client.disconnect()


def normal_code(given: str) -> str:
    """As Telegram wants it, whatever a phone's keyboard made of it: Persian digits, blanks, a hyphen in the middle. Raises
    BadInput: what cannot be a code is not one of its tries."""
    text = "".join(
        char if (digit := unicodedata.digit(char, None)) is None else str(digit)
        for char in given
        if not (char.isspace() or char in "-\u2013\u200e\u200f")
    )
    if not (0 < len(text) <= 32 and text.isascii() and text.isalnum()):
        raise BadInput(code="malformed_code", detail="The code is what Telegram sent, such as 12345.")
    return text


def problem_of(error: ClientError) -> Problem:
    """What the caller is told. The words hold no secret."""
    match error.trouble:
        case Trouble.OFFLINE:
            return Unavailable(code="telegram_unreachable", detail=error.words)
        case Trouble.FLOOD | Trouble.REVOKED | Trouble.BAD_KEYS:
            return Conflict(code=str(error.trouble), detail=error.words)
        case _:
            return BadInput(code=str(error.trouble), detail=error.words)
