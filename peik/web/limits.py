"""Who may come in how often: strangers by their address, those who are known by their key, and anyone who guesses keys hardly at
all. Pure: instants come in, and waits go out.

An address that has shown a valid key is none of a stranger. Guesses are told from mistakes: a program with a wrong key shows the
same one again and again, and costs its neighbours nothing; somebody who guesses shows another one each time.
"""

import functools
import ipaddress
from collections import deque

from peik.core.units import HOLDERS_MAX, Limiter, Rate

KNOWN_S = 3600.0  # after its last valid key an address is a stranger again
ADMIN_HOLDER = 0  # the number of the admin key
GUESSES_KEPT = 16  # wrong keys of one address that are remembered, so that repeating them costs nothing
_UNREADABLE = "unreadable"
_ADDRESS_CHARS_MAX = 64  # what is longer came from a header, and is not worth remembering


class _Known:
    """An address that has shown valid keys, and whose they were."""

    __slots__ = ("holders", "until")

    def __init__(self) -> None:
        self.until = 0.0
        self.holders: set[int] = set()


class RequestLimits:
    """None for a rate is no limit. A holder is the number of a key, or of a bot by its token (see `bot_holder`)."""

    def __init__(self, *, stranger: Rate | None, wrong: Rate | None, key: Rate | None) -> None:
        self._stranger = stranger
        self._wrong = wrong
        self._key = key
        self._strangers: Limiter[str] = Limiter()
        self._wrongs: Limiter[str] = Limiter()
        self._keys: Limiter[int] = Limiter()
        self._guesses: dict[str, deque[int]] = {}
        self._known: dict[str, _Known] = {}

    def stranger_wait_s(self, host: str | None, now: float) -> float:
        """For any request, before anything is read of it: how long its sender has to wait; 0: not at all."""
        if self._stranger is None or host is None or not self.is_stranger(host, now):
            return 0.0
        return self._strangers.spend(address_of(host), self._stranger, now)

    def is_stranger(self, host: str | None, now: float) -> bool:
        """Whether `stranger_wait_s` would count a request from there."""
        return self._stranger is not None and host is not None and not self.is_known(host, now)

    def is_known(self, host: str, now: float) -> bool:
        """Whether something valid was shown from there lately."""
        known = self._known.get(address_of(host))
        return known is not None and known.until > now

    def holder_wait_s(self, host: str | None, holder: int, own: Rate | None, now: float) -> float:
        """For a valid key. `own`: its rate, if it has one of its own.

        While an address has guessed too often, an admin key that was never seen from there has to wait like a wrong one: else
        the answer would tell which guess was right. A person may have chosen that one. Keys and tokens that were made cannot be
        guessed, and behind one address there may be many honest ones besides the guesser.
        """
        if host is not None:
            address = address_of(host)
            known = self._known.get(address)
            if known is None or holder not in known.holders or known.until <= now:
                if holder == ADMIN_HOLDER and self._wrong is not None:
                    wait_s = self._wrongs.wait_s(address, self._wrong, now)
                    if wait_s:
                        return wait_s
                known = self._take_in(address, holder, now)
            known.until = now + KNOWN_S
        rate = own or self._key
        return 0.0 if rate is None else self._keys.spend(holder, rate, now)

    def barred_s(self, host: str | None, now: float) -> float:
        """How long an address that has guessed too often may not guess at all; 0: it may."""
        return 0.0 if self._wrong is None or host is None else self._wrongs.wait_s(address_of(host), self._wrong, now)

    def vouch(self, host: str | None, holder: int, now: float) -> None:
        """Anyone who asks from there is no stranger: he has shown something that only the holder knows."""
        if host is not None:
            self._take_in(address_of(host), holder, now).until = now + KNOWN_S

    def wrong_wait_s(self, host: str | None, shown: str, now: float) -> float:
        """For a wrong key or token: 0 if it may be told so, else how long its sender has to wait before he may try another."""
        if self._wrong is None or host is None:
            return 0.0
        address = address_of(host)
        guesses = self._guesses.get(address)
        guess = hash(shown)  # with a new key in each process, and never shown
        if guesses is not None and guess in guesses:
            return 0.0  # it was told so before
        if wait_s := self._wrongs.spend(address, self._wrong, now):
            return wait_s
        if guesses is None:
            if len(self._guesses) >= HOLDERS_MAX:
                del self._guesses[next(iter(self._guesses))]
            guesses = self._guesses[address] = deque(maxlen=GUESSES_KEPT)
        guesses.append(guess)
        return 0.0

    def _take_in(self, address: str, holder: int, now: float) -> _Known:
        known = self._known.get(address)
        if known is None or known.until <= now:
            self._known.pop(address, None)
            if len(self._known) >= HOLDERS_MAX:
                del self._known[next(iter(self._known))]
            known = self._known[address] = _Known()
        known.holders.add(holder)
        return known


def bot_holder(bot_id: int) -> int:
    """Bots and keys are counted together, and never the same."""
    return -1 - bot_id


def address_of(host: str) -> str:
    """What counts as one sender: an IPv4 address, or the 64 bits that one customer of an IPv6 network is given."""
    return _address_of(host) if len(host) <= _ADDRESS_CHARS_MAX else _UNREADABLE


@functools.lru_cache(maxsize=4096)
def _address_of(host: str) -> str:
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return _UNREADABLE  # somebody wrote it into a header; all of these are one sender
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is not None:
            return str(ip.ipv4_mapped)
        return str(ipaddress.IPv6Address(int(ip) >> 64 << 64))
    return str(ip)
