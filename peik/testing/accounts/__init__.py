"""A simulated Telegram for accounts of people, behind the port `peik.accounts.client.Client`: for testing sessions.

    telegram = Accounts(clock, seed=1)
    sara = telegram.register("+998901234567", first_name="Sara", password="…")
    client = telegram.clients(session_id="s", agent_id="a", secret=None, file=None, proxy=None)
    await client.connect()
    sent = await client.send_code(sara.phone)
    await client.sign_in(sara.phone, telegram.code_of(sara.phone), sent.code_hash)

It keeps time by the clock that it is given, draws chance from its seed, and does nothing by itself.
"""

from peik.testing.accounts.boxes import Chat, Person
from peik.testing.accounts.client import Accounts, SimClient

__all__ = ["Accounts", "Chat", "Person", "SimClient"]
