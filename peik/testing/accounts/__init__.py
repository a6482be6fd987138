"""A simulated Telegram for accounts of people, behind the port `peik.accounts.client.Client`: for testing sessions.

    telegram = Accounts(clock, seed=1)
    sara = telegram.register("+998901234567", first_name="Sara", password="…")
    client = telegram.clients(session_id="s", agent_id="a", secret=None, file=None, proxy=None)
    await client.connect()
    sent = await client.send_code(sara.phone)
    await client.sign_in(sara.phone, telegram.code_of(sara.phone), sent.code_hash)

It keeps time by the clock that it is given, draws chance from its seed, and does nothing by itself. `peik_with` opens a whole
Peik whose accounts sign in there.
"""

from peik.accounts.budget import Budget
from peik.client.local import LocalTransport
from peik.client.peik import Peik
from peik.clock import Clock
from peik.testing.accounts.boxes import Chat, Person
from peik.testing.accounts.client import Accounts, SimClient

__all__ = ["Accounts", "Chat", "Person", "SimClient", "peik_with", "unpaced"]

_NOWHERE = "http://127.0.0.1:9"


def unpaced(clock: Clock) -> Budget:
    """Accounts wait for no turn: nobody is blamed here for asking often."""
    return Budget(clock, per_account=6000, in_all=6000)


def peik_with(telegram: Accounts, store: str, **settings: str) -> Peik:
    """As `Peik.open`, but its accounts are in this Telegram, which keeps time by `SystemClock()`, and ask it as often as they
    like. Bots have none, unless `api_root` says where."""
    told: dict[str, str | None] = {"store": store, "inbound": "off", "api_root": _NOWHERE, **settings}
    return Peik(LocalTransport(told, make_clients=lambda config, clock: telegram.clients, make_budget=unpaced))
