"""A Peik in the middle of its day, for screenshots and for tests of how full pages look: bots, letters in every state, dead ones
with their causes, arrivals, chats, broadcasts, notifications, jobs, accounts, and a day of figures."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from peik.app import rest
from peik.app.dashboard import Dashboard
from peik.app.lifetime import running
from peik.core.events import Events
from peik.gateway.app import Gateway
from peik.settings.config import load
from peik.testing import SimServer
from peik.testing.accounts import Accounts
from peik.testing.faults import Limits, Options
from tests.dashboard import demo_outreach, demo_traffic, demo_work
from tests.dashboard.demo import BOTS, Demo, Shifted
from tests.dashboard.visiting import KEY, listening


@contextlib.asynccontextmanager
async def furnished(folder: Path) -> AsyncIterator[Demo]:
    clock, events = Shifted(), Events()
    accounts = Accounts(clock, seed=1)
    clients = accounts.clients
    async with SimServer(seed=7, options=Options(limits=Limits(on=False))) as sim:
        for bot_id, name in BOTS.items():
            sim.telegram.add_bot(f"{bot_id}:AAdemo", username=name)
        flags = {
            "store": f"sqlite:///{folder / 'peik.db'}",
            "admin_key": KEY,
            "api_root": sim.url,
            "inbound": "polling",
            "grace": "1s",
            "pace": "off",
            "timeout": "10m",
            "log_in_archive": "on",
            "admin_chats": "40100106",
            "bot_tokens": ",".join(f"{bot_id}:AAdemo" for bot_id in BOTS),
        }
        async with running(
            load(flags, environment={}, folder=folder),
            events=events,
            clock=clock,
            is_alone=True,
            make_clients=lambda config, clock: clients,
            job_kinds=demo_work.kinds(),
        ) as runtime:
            demo = Demo(folder, runtime, sim, accounts, clock)
            demo.dashboard = Dashboard(runtime, KEY, rest.build(runtime, KEY))
            async with listening(Gateway(runtime, demo.dashboard)) as demo.url:
                try:
                    await demo_outreach.broadcasts(demo)
                    await demo_traffic.before(demo)
                    await demo_outreach.notifications(demo)
                    await demo_traffic.now(demo)
                    await demo_outreach.furnish(demo)
                    await demo_work.furnish(demo)
                    await demo_outreach.schedules(demo)
                    for bot_id, name in BOTS.items():  # a minute later Telegram would have been asked
                        await runtime.outbox.service.note_me(bot_id, "{}", name)
                    yield demo
                finally:
                    sim.telegram.faults.clear()
                    demo.dashboard.end()
