"""How much, how long, how bad. One plan for half an hour, one for a test."""

import msgspec


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The server is killed every `kill_every_s` until `kills_until` of the time is over; what follows is one long life, since a
    leak within a process dies with it."""

    for_s: float
    bots: int = 20
    lanes: int = 12  # chats of each bot that letters go to, each with a sender of its own
    people: int = 6  # of each bot, who write and are answered
    gap_s: float = 4.0  # between two letters of a lane, on average; Telegram allows one a second in a chat
    written_gap_s: float = 6.0  # between two messages of a person
    kill_every_s: float = 180.0
    kills_until: float = 0.5
    trouble_every_s: float = 6.0
    outage_s: tuple[float, float] = (4.0, 12.0)
    timeout_s: float | None = None  # of letters by REST, which alone meet silence then; else the default, for all
    seed: int = 20261116

    @property
    def kill_times_s(self) -> list[float]:
        count = int(self.for_s * self.kills_until / self.kill_every_s)
        return [self.kill_every_s * (number + 1) for number in range(count)]


def long(minutes: float) -> Plan:
    """A kill every three minutes where there is time for it, and two at least."""
    for_s = minutes * 60.0
    return Plan(for_s=for_s, kill_every_s=min(180.0, for_s * 0.25))


SHORT = Plan(
    for_s=12.0,
    bots=4,
    lanes=4,
    people=2,
    gap_s=0.8,
    written_gap_s=0.8,
    kill_every_s=4.0,
    kills_until=0.7,
    trouble_every_s=1.0,
    outage_s=(0.3, 1.0),
    timeout_s=2.0,
)
