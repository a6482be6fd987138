"""Broadcasts, notifications and people of the demo."""

from msgspec.structs import replace

from peik.admin.model import Role
from peik.broadcasts.audience import listed
from peik.broadcasts.model import Canary, Phase
from peik.broadcasts.service import BroadcastRequest
from peik.core.quiet import Quiet
from peik.notifications.model import NotifyRequest
from peik.schedules.model import BroadcastWork, JobWork, LetterWork, Terms
from peik.testing.faults import Kind
from tests.dashboard.demo import NEWS, SHOP, Demo
from tests.dashboard.demo_words import PEOPLE
from tests.web.accounts import until

READERS = 400
FIRST = 50_000_000


async def furnish(demo: Demo) -> None:
    await demo.dashboard.board.people.add("sara", Role.OPERATOR, "a long password for the demo")
    await demo.dashboard.board.people.add("tom", Role.VIEWER, "a long password for the demo")
    await demo.dashboard.board.people.add("amir", Role.ADMIN, "a long password for the demo")
    await demo.runtime.keyring.make("shop backend", ("send",))
    await demo.runtime.keyring.make("grafana", ("read",), expires_at_ms=demo.clock.wall_ms() + 86_400_000 * 60)


async def broadcasts(demo: Demo) -> None:
    service, faults = demo.runtime.broadcasts.service, demo.sim.telegram.faults
    chats = listed(range(FIRST, FIRST + READERS))
    for chat in range(FIRST, FIRST + READERS, 37):
        faults.add(Kind.ERROR, status=403, words="Forbidden: bot was blocked by the user", chat=chat)
    text = "Весенняя распродажа: скидка 30 % на всё до воскресенья!"
    done = await service.create(
        BroadcastRequest(
            bot_id=NEWS,
            name="Spring sale",
            method="sendMessage",
            params={"text": text},
            audience=chats,
            canary=Canary(count=20, limit=0.5),
            start=True,
            created_by="sara",
        )
    )
    await until(lambda: _is_over(demo, done.id))
    demo.pages["broadcast-done"] = f"/admin/broadcasts/{done.id}"
    # Half of them never answer, so that it stays on its way.
    for chat in range(FIRST + READERS, FIRST + READERS + 64):
        faults.add(Kind.HANG, chat=chat, method="sendMessage")
    going = await service.create(
        BroadcastRequest(
            bot_id=NEWS,
            name="نوروز مبارک",
            method="sendMessage",
            params={"text": "سال نو مبارک!"},
            audience=listed([*range(FIRST, FIRST + 150), *range(FIRST + READERS, FIRST + 2 * READERS)]),
            start=True,
            created_by="sara",
        )
    )
    await until(lambda: _has_begun(demo, going.id))
    demo.pages["broadcast-running"] = f"/admin/broadcasts/{going.id}"
    draft = await service.create(
        BroadcastRequest(
            bot_id=NEWS,
            name="Opening hours in May",
            method="sendMessage",
            params={"text": "We are open from 9 to 18."},
            audience=listed(range(FIRST, FIRST + 90)),
            quiet=Quiet(start="22:00", end="08:00", tz="Asia/Tehran"),
            created_by="tom",
        )
    )
    demo.pages["broadcast-draft"] = f"/admin/broadcasts/{draft.id}?estimate=1"


async def schedules(demo: Demo) -> None:
    service = demo.runtime.schedules.service
    morning = LetterWork(params={"chat_id": 40100106, "text": "صبح بخیر! امروز %{jalali} است."})
    made, _ = await service.put(
        "morning",
        Terms(cron="30 9 * * 6,0-3", tz="Asia/Tehran", title="صبح بخیر", bot_id=SHOP, letter=morning),
        by="sara",
    )
    await service.put("morning", replace(made.terms, cron="30 8 * * 6,0-3"), by="amir")
    await service.run_now("morning", by="sara")
    news = BroadcastWork(params={"text": "The week until %{date}"}, languages=["ru"], seen_within_days=60)
    await service.put(
        "weekly-news", Terms(cron="0 18 * * SUN", tz="Asia/Tashkent", bot_id=NEWS, broadcast=news), by="tom"
    )
    report = JobWork(kind="report", params={"month": "%{month-30}"}, user="tom")
    await service.put("monthly-report", Terms(cron="@monthly", job=report), by="tom")
    await service.pause("monthly-report")
    demo.pages["schedule"] = "/admin/schedules/morning"
    demo.pages["schedule-edit"] = "/admin/schedules/weekly-news/edit"


async def _is_over(demo: Demo, broadcast_id: str) -> bool:
    return (await demo.runtime.broadcasts.service.get(broadcast_id)).phase is Phase.COMPLETED


async def _has_begun(demo: Demo, broadcast_id: str) -> bool:
    return (await demo.runtime.broadcasts.service.get(broadcast_id)).counts.done >= 100


async def notifications(demo: Demo) -> None:
    service = demo.runtime.notifications.service
    await service.templates.save("order", "en", "<b>{title}</b>\n{message}\n\nOrder {number}")
    await service.templates.save("order", "fa", "<b>{title}</b>\n{message}\n({number}) سفارش")
    await service.templates.save("reminder", "ru", "<b>{title}</b>: {message}")
    for user_id, name, language, _ in PEOPLE[:7]:
        named = f"customer-{user_id % 1000}"
        code = await service.links.new_code(named, bot_id=SHOP, language=language)
        if name != "Дмитрий":
            demo.sim.telegram.write(SHOP, user_id, f"/start {code.code}")
            await until(lambda named=named: _is_linked(demo, named))
    await service.links.change("customer-101", quiet=Quiet(start="23:00", end="07:30", tz="Asia/Tehran"))
    said = (
        ("order", "Sent", "Your parcel is on its way."),
        ("order", "ارسال شد", "بسته شما در راه است."),
        ("reminder", "Приём", "завтра в 09:30"),
    )
    for number in range(12):
        kind, title, message = said[number % 3]
        who = PEOPLE[(number * 2) % 7]
        if who[1] != "Дмитрий":
            await service.notify(
                [
                    NotifyRequest(
                        type=kind,
                        title=title,
                        message=message,
                        user_id=f"customer-{who[0] % 1000}",
                        data={"number": 10_480 + number},
                    )
                ]
            )


async def _is_linked(demo: Demo, user_id: str) -> bool:
    user = await demo.runtime.notifications.service.links.user(user_id)
    return user is not None and user.link is not None
