"""The story, one function a chapter. Each step is a deed, then a fact that is waited for, then a sentence about it."""

import asyncio
import time

import msgspec

from peik.demo import narration
from peik.demo.book import Promise
from peik.demo.scene import Scene, at_once
from peik.demo.stage import TOKEN
from peik.demo.town import GROUP

_CROWD_FIRST = 20_001
_QUEUE_FIRST = 30_001
_RESEND_MS = 500  # the first wait after an uncertain try; 2 s by default, and nobody likes to watch a wait
_RECOVERED = "found in flight"  # how Peik's log tells of letters that a crash left in doubt


async def flow(scene: Scene) -> None:
    scene.begin(1, narration.FLOW, narration.FLOW_LEAD)
    scene.screen.note(narration.LOOK, url=scene.stage.peik.url, key=scene.stage.peik.key)
    town = scene.town
    for person, question in zip(town.people, narration.QUESTIONS[:3], strict=False):
        answer, took_s = await scene.talk(person, question)
        scene.screen.note(
            narration.FLOW_TALK, name=person.first_name, asked=question, answer=answer, ms=round(took_s * 1000)
        )
        for _ in range(3):
            await town.tell_of_an_order()
        await scene.beat(0.6)
    await scene.watch.quiet()
    scene.screen.note(narration.FLOW_END, accepted=scene.watch.now.accepted, delivered=scene.watch.now.delivered)
    await scene.end()


async def dark(scene: Scene) -> None:
    scene.begin(2, narration.DARK, narration.DARK_LEAD)
    people, watch = scene.town.people, scene.watch
    await scene.dark(is_dark=True)
    promises = [await scene.town.tell_of_an_order(person) for person in people]
    await watch.until(lambda: watch.now.is_route_open, what="for Peik to notice the dark")
    scene.screen.note(narration.DARK_FOUND)
    for _ in range(scene.scale.orders - 1):
        for person in people:
            promises.append(await scene.town.tell_of_an_order(person))
            await scene.beat(1 / len(people))
    arrived = sum(scene.book.arrival(promise.text) is not None for promise in promises)
    scene.screen.note(narration.DARK_STILL, count=len(promises), arrived=arrived)
    await scene.beat()
    fates = await scene.fates(promises)
    scene.screen.note(
        narration.DARK_COST,
        attempts=sum(fate.attempts_made for fate in fates),
        uncertain=sum(fate.uncertain_tries for fate in fates),
        failed=sum(fate.state == "failed" for fate in fates),
    )
    await scene.town.ask(people[-1], narration.DARK_QUESTION)
    await scene.end()
    await _back(scene, promises)


async def _back(scene: Scene, promises: list[Promise]) -> None:
    scene.begin(3, narration.BACK, narration.BACK_LEAD)
    watch, asker = scene.watch, scene.town.people[-1]
    lit_at = time.time()
    await scene.dark(is_dark=False)
    await watch.until(lambda: not watch.now.is_route_open, what="for Peik to find Telegram again")
    found_at = time.time()
    scene.screen.note(narration.BACK_FOUND, seconds=f"{found_at - lit_at:.1f}")
    await watch.quiet()
    took_s = max(0.0, scene.last_arrival_at(promises) - found_at)
    chats, disordered = scene.book.disordered([promise.text for promise in promises])
    scene.screen.note(
        narration.BACK_END, count=len(promises), seconds=f"{took_s:.1f}", ordered=chats - disordered, chats=chats
    )
    question = narration.DARK_QUESTION
    await watch.until(lambda: scene.answered_at(asker, question) > 0, what="for the bot to answer")
    scene.screen.note(narration.BACK_TALK, name=asker.first_name, asked=question)
    await scene.end()


async def crash(scene: Scene) -> None:
    scene.begin(4, narration.CRASH, narration.CRASH_LEAD, count=scene.scale.queue)
    chats = [_QUEUE_FIRST + place for place in range(scene.scale.queue)]
    unheard, unanswered = chats[2:8:2], chats[3:9:2]
    invoice_chat = unanswered[-1]
    await _trouble(scene, unheard=unheard, unanswered=unanswered)
    promises: list[Promise] = []
    for chat_id in chats:
        if chat_id == invoice_chat:
            promises.append(await scene.town.send(chat_id, narration.INVOICE, on_uncertain="hold"))
        else:
            promises.append(await scene.town.send(chat_id, narration.ORDERS[0], backoff_ms=_RESEND_MS))
    await _struck(scene, len(unheard) + len(unanswered))
    scene.screen.note(
        narration.CRASH_KILL, pid=scene.stage.peik_pid, waiting=(await scene.stage.peik.stats()).unfinished
    )

    async with asyncio.TaskGroup() as shop:
        restarting = shop.create_task(scene.kill_and_restart(meanwhile=0.8))
        await scene.watch.until(lambda: not scene.watch.now.is_peik_up, what="for Peik to be seen dead")
        arrived = {promise.text for promise in promises if scene.book.arrival(promise.text)}
        await scene.stage.sim.end_faults()
        offered = [shop.create_task(scene.town.tell_of_an_order(person)) for person in scene.town.people[:5]]
    words, count = await _recovered(scene)
    scene.screen.note(narration.CRASH_BACK, seconds=f"{restarting.result():.1f}", words=words, count=count)
    await scene.beat()
    fates = await scene.fates(promises)
    doubtful = [promise for promise, fate in zip(promises, fates, strict=True) if fate.uncertain_tries]
    reached = sum(promise.text in arrived for promise in doubtful)
    scene.screen.note(narration.CRASH_ARRIVED, count=len(doubtful), arrived=reached, missing=len(doubtful) - reached)
    await scene.beat()
    invoice = fates[chats.index(invoice_chat)]
    resent = [promise for promise in doubtful if promise.chat_id != invoice_chat]
    scene.screen.note(narration.CRASH_RESENT, count=len(resent))
    scene.screen.note(narration.CRASH_HELD, state=invoice.state, reason=invoice.failed_reason)
    if promises[chats.index(invoice_chat)].text in arrived:
        scene.screen.note(narration.CRASH_HELD_ARRIVED)
    await scene.beat()
    scene.screen.note(narration.CRASH_NEW, count=len(offered))
    await scene.watch.quiet()
    at_telegram = sum(scene.book.arrival(promise.text) is not None for promise in promises)
    scene.screen.note(narration.CRASH_END, count=len(promises), arrived=at_telegram)
    await scene.end()


async def _trouble(scene: Scene, *, unheard: list[int], unanswered: list[int]) -> None:
    """Some chats' letters never get through, others do and are not confirmed: from here they look the same."""
    for chat_id in unheard:
        await scene.stage.sim.order("faults", kind="hang", chat=chat_id)
    for chat_id in unanswered:
        await scene.stage.sim.order("faults", kind="hang", chat=chat_id, after=True)


async def _struck(scene: Scene, count: int) -> None:
    """Until so many letters hang in the air."""
    async with asyncio.timeout(30):
        while True:
            if (await scene.stage.sim.counters()).faults.get("hang", 0) >= count:
                return
            await asyncio.sleep(0.02)


class _LogLine(msgspec.Struct):
    event: str
    count: int = 0


async def _recovered(scene: Scene) -> tuple[str, int]:
    """Peik's own words about what the crash left in doubt, and how many letters it means."""

    def said() -> str:
        return next((line for line in reversed(scene.stage.peik_log()) if _RECOVERED in line), "")

    await scene.watch.until(lambda: bool(said()), what="for Peik to find what was in flight")
    line = msgspec.json.decode(said(), type=_LogLine)
    return line.event.lstrip("~ "), line.count


async def flood(scene: Scene) -> None:
    scale, watch = scene.scale, scene.watch
    scene.begin(5, narration.FLOOD, narration.FLOOD_LEAD, crowd=scale.crowd)
    await scene.beat(0.5)
    chats = [_CROWD_FIRST + place for place in range(scale.crowd)] + [GROUP] * scale.group
    scene.chance.shuffle(chats)
    limited_before = watch.now.limited
    began_at = time.time()
    promises = await at_once(lambda chat_id: scene.town.send(chat_id, narration.NEWS), chats)
    accepted_s = time.time() - began_at
    scene.screen.note(narration.FLOOD_ACCEPTED, count=len(promises), ms=round(accepted_s * 1000))
    person, question = scene.town.people[6], scene.town.some_question()
    _, took_s = await scene.talk(person, question)
    scene.screen.note(narration.FLOOD_TALK, name=person.first_name, asked=question, ms=round(took_s * 1000))
    await watch.quiet()
    took_s = scene.last_arrival_at(promises) - began_at
    scene.screen.note(
        narration.FLOOD_END,
        seconds=f"{took_s:.1f}",
        rate=scene.book.fastest(promise.text for promise in promises),
        limited=watch.now.limited - limited_before,
    )
    await scene.end()


async def blocked(scene: Scene) -> None:
    gone, present = scene.town.leaver, scene.town.people[2]
    scene.begin(6, narration.BLOCKED, narration.BLOCKED_LEAD, name=gone.first_name)
    await scene.stage.sim.order("block", bot=TOKEN, user=gone.id)
    began = time.monotonic()
    promise = await scene.town.send(gone.id, narration.AWAY)
    other = await scene.town.send(present.id, narration.AWAY)
    fate = await scene.stage.peik.fate(promise.letter_id, wait="30s")
    took_s = time.monotonic() - began
    scene.screen.note(narration.BLOCKED_END, letter=promise.letter_id, state=fate.state, reason=fate.failed_reason)
    scene.screen.note(narration.BLOCKED_LOOK, url=scene.stage.peik.url, letter=promise.letter_id)
    await scene.watch.until(lambda: scene.book.arrival(other.text) is not None, what="for the other letter")
    scene.screen.note(narration.BLOCKED_OTHER, ms=round(took_s * 1000), name=present.first_name)
    await scene.watch.quiet()
    await scene.end()
