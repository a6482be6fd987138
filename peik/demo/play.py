"""One performance from start to end: play, count, clear away. A signal ends what goes on, and the rest still happens."""

import asyncio
import contextlib
import itertools
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import webbrowser
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from peik.app.serve import own_command
from peik.demo.screen import DemoBook, DemoCounts, DemoWatch, Promise, Screen, Stuck, narration
from peik.demo.stage import TOKEN, DemoDeclined, DemoFate, DemoMessage, DemoPerson, DemoStage, Unanswered
from peik.errors import StartError, to_install

# Who makes the traffic: people who write, a small bot that answers them, a shop that sends news. All send through Peik.


GROUP = -1001000000001
_POLL_S = 20
_ANSWERED_FIRST = 1  # priority high: somebody waits for it


class Town:
    def __init__(self, stage: DemoStage, book: DemoBook, *, chance: random.Random) -> None:
        self._stage = stage
        self._book = book
        self._chance = chance
        self._numbers = itertools.count(1)
        self._answers: dict[tuple[int, str], str] = {}  # by person and question
        self.is_bot_ending = False
        self.people = [DemoPerson(1001 + place, name) for place, name in enumerate(narration.people)]
        self.leaver = DemoPerson(1099, narration.leaver)

    async def settle_in(self) -> None:
        sim = self._stage.sim
        await sim.order("bots", token=TOKEN, first_name=narration.bot, username="courier_demo_bot")
        for person in [*self.people, self.leaver]:
            await sim.order("users", id=person.id, first_name=person.first_name)
        await sim.order("chats", type="supergroup", title=narration.group, id=GROUP, bots=[TOKEN])

    # ---- the shop ----

    async def send(self, chat_id: int, text: str, *, priority: int = 0, **terms: object) -> Promise:
        """Returns once Peik has promised the letter. Each text gets a number, so that the ledger can be matched by it."""
        number = next(self._numbers)
        params: dict[str, object] = {"chat_id": chat_id, "text": f"{text} · {number}"}
        letter_id = await self._stage.peik.send(params, key=f"demo-{number}", priority=priority, **terms)
        promise = Promise(
            letter_id=letter_id,
            chat_id=chat_id,
            text=f"{text} · {number}",
            is_plain=priority == 0,
            promised_at=time.monotonic(),
        )
        self._book.promised(promise)
        return promise

    async def hand_in_again(self, promise: Promise) -> str:
        """The same call once more, as a program does that has not heard an answer: the id that it is told."""
        number = promise.text.rpartition(" · ")[2]
        return await self._stage.peik.send({"chat_id": promise.chat_id, "text": promise.text}, key=f"demo-{number}")

    async def tell_of_an_order(self, person: DemoPerson | None = None) -> Promise:
        somebody = person or self._chance.choice(self.people)
        return await self.send(somebody.id, self._chance.choice(narration.orders))

    # ---- people ----

    async def ask(self, person: DemoPerson, question: str) -> None:
        await self._stage.sim.order("write", bot=TOKEN, user=person.id, text=question)

    def answer(self, person: DemoPerson, question: str) -> str | None:
        """The bot's answer, once Peik has promised it."""
        return self._answers.get((person.id, question))

    def some_question(self) -> str:
        question: str = self._chance.choice(narration.questions)
        return question

    # ---- the bot ----

    async def run_bot(self) -> None:
        """A long poll at Peik, as any bot does that has Peik as its API root; the answers go through it as well. When it ends it
        confirms what it has answered, as bots do that are ended and not killed."""
        offset = 0
        try:
            while True:
                for update in await self._stage.peik.updates(TOKEN, offset=offset, timeout_s=_POLL_S):
                    offset = update.update_id + 1
                    if update.message is not None:
                        await self._reply(update.message)
        finally:
            if self.is_bot_ending:
                await self._stage.peik.updates(TOKEN, offset=offset, timeout_s=0)

    async def _reply(self, message: DemoMessage) -> None:
        if message.sender is None or not message.text:
            return
        text = narration.answer.format(name=message.sender.first_name)
        promise = await self.send(message.chat.id, text, priority=_ANSWERED_FIRST)
        self._answers[message.sender.id, message.text] = promise.text


# What every chapter has at hand: the processes, the town, the book, the screen, and the small steps that chapters
# share.


T = TypeVar("T")
R = TypeVar("R")
_AT_ONCE = 20  # requests of the demo to Peik at one time


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """How much of everything."""

    beat_s: float  # the time to read a sentence
    orders: int  # per person, in the dark
    queue: int  # letters going out at the crash
    crowd: int  # people in the flood
    group: int  # letters to one group in the flood


FULL = Scale(beat_s=1.0, orders=4, queue=40, crowd=120, group=6)
QUICK = Scale(beat_s=0.0, orders=2, queue=20, crowd=30, group=4)


class DemoScene:
    def __init__(self, stage: DemoStage, screen: Screen, *, scale: Scale, seed: int) -> None:
        self.stage = stage
        self.screen = screen
        self.scale = scale
        self.chance = random.Random(seed)
        self.book = DemoBook()
        self.town = Town(stage, self.book, chance=self.chance)
        self.watch = DemoWatch(stage, self.book, show=screen.show)
        self.chapters = 0  # in all
        self._number = 0
        self.look = narration.look  # how the dashboard is found
        self.start_bot: Callable[[], asyncio.Task[None]]
        self.bot: asyncio.Task[None]

    def begin(self, title: str, lead: str, **values: object) -> None:
        self._number += 1
        self.watch.now.chapter = f"{self._number} / {self.chapters} · {title}"
        self.screen.chapter(f"{self._number}. {title}", lead, **values)

    async def end(self) -> None:
        await self.watch.until(lambda: True, what="for a look")
        self.screen.counters()
        await self.beat()

    async def beat(self, times: float = 1.0) -> None:
        await asyncio.sleep(self.scale.beat_s * times)

    async def dark(self, *, is_dark: bool) -> None:
        await self.stage.sim.order("dark", on=is_dark)
        self.watch.now.is_dark = is_dark

    async def kill_and_restart(self, *, meanwhile: float = 0.0) -> float:
        """How long it took Peik to come back, in seconds."""
        await self.stage.kill_peik()
        await self.watch.until(lambda: not self.watch.now.is_peik_up, what="for Peik to be seen dead")
        await self.beat(meanwhile)
        began = time.monotonic()
        await self.stage.start_peik()
        return time.monotonic() - began

    async def talk(self, person: DemoPerson, question: str) -> tuple[str, float]:
        """A person writes and gets an answer: its words, and the seconds between the two by Telegram's ledger."""
        asked_at = time.time()
        await self.town.ask(person, question)
        await self.watch.until(lambda: self.answered_at(person, question) > asked_at, what="for the bot to answer")
        answer = self.town.answer(person, question)
        assert answer is not None
        return answer, self.answered_at(person, question) - asked_at

    def answered_at(self, person: DemoPerson, question: str) -> float:
        """When the newest answer to this question arrived; 0 while it has not."""
        answer = self.town.answer(person, question)
        arrival = self.book.first_arrivals.get(answer) if answer is not None else None
        return 0.0 if arrival is None else arrival.at

    def last_arrival_at(self, promises: Iterable[Promise]) -> float:
        return max((one.at for promise in promises if (one := self.book.first_arrivals.get(promise.text))), default=0.0)

    async def fates(self, promises: Sequence[Promise]) -> list[DemoFate]:
        """What Peik says of each of these letters."""
        return await at_once(lambda promise: self.stage.peik.fate(promise.letter_id), promises)

    async def audit(self) -> None:
        """Write into the book what Peik says of every letter that had not ended when it was last asked."""
        promises = self.book.open_promises()

        async def ask(promise: Promise) -> None:
            try:
                promise.fate = await self.stage.peik.fate(promise.letter_id)
            except DemoDeclined as refusal:
                if refusal.status != 404:  # a letter that Peik does not know any more is left without a fate
                    raise

        await at_once(ask, promises)
        self.book.fold(time.monotonic())


async def at_once(work: Callable[[T], Awaitable[R]], items: Sequence[T]) -> list[R]:
    """The results in order, some at a time."""
    results: list[R] = []
    for start in range(0, len(items), _AT_ONCE):
        results += await asyncio.gather(*(work(item) for item in items[start : start + _AT_ONCE]))
    return results


# After the story: gentle traffic without end, and now and then a dark Telegram or a dead Peik.


_TALK_S = (0.6, 2.5)  # between two deeds of the town
_QUIET_S = (25.0, 40.0)  # between two troubles
_DARK_S = 8
_AUDIT_S = 20.0


async def encore(scene: DemoScene) -> None:
    """Until cancelled."""
    scene.watch.now.chapter = narration.encore
    scene.screen.chapter(narration.encore, narration.encore_lead)
    peik = scene.stage.peik
    scene.screen.note(narration.look, url=peik.url, key=peik.key)
    scene.screen.note(narration.encore_api, url=peik.url, key=peik.key)
    scene.screen.note(narration.encore_sim, url=scene.stage.sim.control_url)
    scene.screen.note(narration.encore_try, url=peik.url, key=peik.key)
    command = own_command(sys.argv[0], folder=Path.cwd(), on_path=shutil.which("peik"))
    scene.screen.note(narration.encore_next, peik=command)
    async with asyncio.TaskGroup() as group:
        group.create_task(_traffic(scene))
        group.create_task(_trouble(scene))
        group.create_task(_audits(scene))


async def _traffic(scene: DemoScene) -> None:
    while True:
        await asyncio.sleep(scene.chance.uniform(*_TALK_S))
        if scene.chance.random() < 0.4:
            await scene.town.ask(scene.chance.choice(scene.town.people), scene.town.some_question())
        else:
            await scene.town.tell_of_an_order()


async def _trouble(scene: DemoScene) -> None:
    while True:
        for trouble in (_dark, _dark, _kill):
            await asyncio.sleep(scene.chance.uniform(*_QUIET_S))
            await trouble(scene)


async def _dark(scene: DemoScene) -> None:
    scene.screen.note(narration.encore_dark, seconds=_DARK_S)
    await scene.dark(is_dark=True)
    await asyncio.sleep(_DARK_S)
    waiting = scene.watch.now.waiting
    await scene.dark(is_dark=False)
    await scene.watch.quiet()
    scene.screen.note(narration.encore_lit, waiting=waiting)
    scene.screen.counters()


async def _kill(scene: DemoScene) -> None:
    pid = scene.stage.peik_pid
    seconds = await scene.kill_and_restart()
    await scene.watch.until(lambda: scene.watch.now.is_peik_up, what="for Peik to be seen again")
    scene.screen.note(narration.encore_kill, pid=pid, seconds=f"{seconds:.1f}")
    scene.screen.counters()


async def _audits(scene: DemoScene) -> None:
    while True:
        await asyncio.sleep(_AUDIT_S)
        with contextlib.suppress(Unanswered):  # Peik was killed a moment ago; there is a next time
            await scene.audit()


# The story, one function a chapter. Each step is a deed, then a fact that is waited for, then a sentence about it.


_CROWD_FIRST = 20_001
_QUEUE_FIRST = 30_001
_RESEND_MS = 500  # the first wait after an uncertain try; 2 s by default, and nobody likes to watch a wait
_RECOVERED = "found in flight"  # how Peik's log tells of letters that a crash left in doubt


async def flow(scene: DemoScene) -> None:
    scene.begin(narration.flow, narration.flow_lead)
    scene.screen.note(scene.look, url=scene.stage.peik.url, key=scene.stage.peik.key)
    town = scene.town
    for person, question in zip(town.people, narration.questions[:3], strict=False):
        answer, took_s = await scene.talk(person, question)
        scene.screen.note(
            narration.flow_talk, name=person.first_name, asked=question, answer=answer, ms=round(took_s * 1000)
        )
        for _ in range(3):
            await town.tell_of_an_order()
        await scene.beat(0.6)
    await scene.watch.quiet()
    scene.screen.note(narration.flow_end, accepted=scene.watch.now.accepted, delivered=scene.watch.now.delivered)
    await scene.end()


async def dark(scene: DemoScene) -> None:
    scene.begin(narration.dark, narration.dark_lead)
    people, watch = scene.town.people, scene.watch
    await scene.dark(is_dark=True)
    promises = [await scene.town.tell_of_an_order(person) for person in people]
    await watch.until(lambda: watch.now.is_route_open, what="for Peik to notice the dark")
    scene.screen.note(narration.dark_found)
    for _ in range(scene.scale.orders - 1):
        for person in people:
            promises.append(await scene.town.tell_of_an_order(person))
            await scene.beat(1 / len(people))
    arrived = sum(scene.book.first_arrivals.get(promise.text) is not None for promise in promises)
    scene.screen.note(narration.dark_still, count=len(promises), arrived=arrived)
    await scene.beat()
    fates = await scene.fates(promises)
    scene.screen.note(
        narration.dark_cost,
        attempts=sum(fate.attempts_made for fate in fates),
        uncertain=sum(fate.uncertain_tries for fate in fates),
        failed=sum(fate.state == "failed" for fate in fates),
    )
    await scene.town.ask(people[-1], narration.dark_question)
    await scene.end()
    await _back(scene, promises)


async def _back(scene: DemoScene, promises: list[Promise]) -> None:
    scene.begin(narration.back, narration.back_lead)
    watch, asker = scene.watch, scene.town.people[-1]
    lit_at = time.time()
    await scene.dark(is_dark=False)
    await watch.until(lambda: not watch.now.is_route_open, what="for Peik to find Telegram again")
    found_at = time.time()
    scene.screen.note(narration.back_found, seconds=f"{found_at - lit_at:.1f}")
    await watch.quiet()
    took_s = max(0.0, scene.last_arrival_at(promises) - found_at)
    chats, disordered = scene.book.disordered([promise.text for promise in promises])
    scene.screen.note(
        narration.back_end, count=len(promises), seconds=f"{took_s:.1f}", ordered=chats - disordered, chats=chats
    )
    question = narration.dark_question
    await watch.until(lambda: scene.answered_at(asker, question) > 0, what="for the bot to answer")
    scene.screen.note(narration.back_talk, name=asker.first_name, asked=question)
    await scene.end()


async def crash(scene: DemoScene) -> None:
    scene.begin(narration.crash, narration.crash_lead, count=scene.scale.queue)
    chats = [_QUEUE_FIRST + place for place in range(scene.scale.queue)]
    unheard, unanswered = chats[2:8:2], chats[3:9:2]
    invoice_chat = unanswered[-1]
    await _chapter_trouble(scene, unheard=unheard, unanswered=unanswered)
    promises: list[Promise] = []
    for chat_id in chats:
        if chat_id == invoice_chat:
            promises.append(await scene.town.send(chat_id, narration.invoice, on_uncertain="hold"))
        else:
            promises.append(await scene.town.send(chat_id, narration.orders[0], backoff_ms=_RESEND_MS))
    await _struck(scene, len(unheard) + len(unanswered))
    scene.screen.note(
        narration.crash_kill, pid=scene.stage.peik_pid, waiting=(await scene.stage.peik.stats()).unfinished
    )

    async with asyncio.TaskGroup() as shop:
        restarting = shop.create_task(scene.kill_and_restart(meanwhile=0.8))
        await scene.watch.until(lambda: not scene.watch.now.is_peik_up, what="for Peik to be seen dead")
        arrived = {promise.text for promise in promises if scene.book.first_arrivals.get(promise.text)}
        await scene.stage.sim.end_faults()
        offered = [shop.create_task(scene.town.tell_of_an_order(person)) for person in scene.town.people[:5]]
    words, count = await _recovered(scene)
    scene.screen.note(narration.crash_back, seconds=f"{restarting.result():.1f}", words=words, count=count)
    await scene.beat()
    fates = await scene.fates(promises)
    doubtful = [promise for promise, fate in zip(promises, fates, strict=True) if fate.uncertain_tries]
    reached = sum(promise.text in arrived for promise in doubtful)
    scene.screen.note(narration.crash_arrived, count=len(doubtful), arrived=reached, missing=len(doubtful) - reached)
    await scene.beat()
    invoice = fates[chats.index(invoice_chat)]
    resent = [promise for promise in doubtful if promise.chat_id != invoice_chat]
    scene.screen.note(narration.crash_resent, count=len(resent))
    scene.screen.note(narration.crash_held, state=invoice.state, reason=invoice.failed_reason)
    if promises[chats.index(invoice_chat)].text in arrived:
        scene.screen.note(narration.crash_held_arrived)
    await scene.beat()
    scene.screen.note(narration.crash_new, count=len(offered))
    await scene.watch.quiet()
    at_telegram = sum(scene.book.first_arrivals.get(promise.text) is not None for promise in promises)
    scene.screen.note(narration.crash_end, count=len(promises), arrived=at_telegram)
    await scene.end()


async def _chapter_trouble(scene: DemoScene, *, unheard: list[int], unanswered: list[int]) -> None:
    """Some chats' letters never get through, others do and are not confirmed: from here they look the same."""
    for chat_id in unheard:
        await scene.stage.sim.order("faults", kind="hang", chat=chat_id)
    for chat_id in unanswered:
        await scene.stage.sim.order("faults", kind="hang", chat=chat_id, after=True)


async def _struck(scene: DemoScene, count: int) -> None:
    """Until a number of letters is in flight."""
    async with asyncio.timeout(30):
        while True:
            if (await scene.stage.sim.counters()).faults.get("hang", 0) >= count:
                return
            await asyncio.sleep(0.02)


class _LogLine(msgspec.Struct):
    event: str
    count: int = 0


async def _recovered(scene: DemoScene) -> tuple[str, int]:
    """Peik's own words about what the crash left in doubt, and how many letters it means."""

    def said() -> str:
        return next((line for line in reversed(scene.stage.peik_log()) if _RECOVERED in line), "")

    await scene.watch.until(lambda: bool(said()), what="for Peik to find what was in flight")
    line = msgspec.json.decode(said(), type=_LogLine)
    return line.event.lstrip("~ "), line.count


async def flood(scene: DemoScene) -> None:
    scale, watch = scene.scale, scene.watch
    scene.begin(narration.flood, narration.flood_lead, crowd=scale.crowd)
    await scene.beat(0.5)
    chats = [_CROWD_FIRST + place for place in range(scale.crowd)] + [GROUP] * scale.group
    scene.chance.shuffle(chats)
    limited_before = watch.now.limited
    began_at = time.time()
    promises = await at_once(lambda chat_id: scene.town.send(chat_id, narration.news), chats)
    accepted_s = time.time() - began_at
    scene.screen.note(narration.flood_accepted, count=len(promises), ms=round(accepted_s * 1000))
    person, question = scene.town.people[6], scene.town.some_question()
    _, took_s = await scene.talk(person, question)
    scene.screen.note(narration.flood_talk, name=person.first_name, asked=question, ms=round(took_s * 1000))
    await watch.quiet()
    took_s = scene.last_arrival_at(promises) - began_at
    scene.screen.note(
        narration.flood_end,
        seconds=f"{took_s:.1f}",
        rate=scene.book.fastest(promise.text for promise in promises),
        limited=watch.now.limited - limited_before,
    )
    await scene.end()


async def blocked(scene: DemoScene) -> None:
    gone, present = scene.town.leaver, scene.town.people[2]
    scene.begin(narration.blocked, narration.blocked_lead, name=gone.first_name)
    await scene.stage.sim.order("block", bot=TOKEN, user=gone.id)
    began = time.monotonic()
    promise = await scene.town.send(gone.id, narration.away)
    other = await scene.town.send(present.id, narration.away)
    fate = await scene.stage.peik.fate(promise.letter_id, wait="30s")
    took_s = time.monotonic() - began
    scene.screen.note(narration.blocked_end, letter=promise.letter_id, state=fate.state, reason=fate.failed_reason)
    scene.screen.note(narration.blocked_look, url=scene.stage.peik.url, letter=promise.letter_id)
    await scene.watch.until(lambda: scene.book.first_arrivals.get(other.text) is not None, what="for the other letter")
    scene.screen.note(narration.blocked_other, ms=round(took_s * 1000), name=present.first_name)
    await scene.watch.quiet()
    await scene.end()


async def asleep(scene: DemoScene) -> None:
    scene.begin(narration.asleep, narration.asleep_lead)
    town, peik = scene.town, scene.stage.peik
    town.is_bot_ending = True
    scene.bot.cancel()
    await asyncio.wait([scene.bot])
    town.is_bot_ending = False
    asked = [(person, question) for question in narration.questions[1:3] for person in town.people[:6]]
    began_at = time.time()
    for person, question in asked:
        await town.ask(person, question)
    kept = 0
    async with asyncio.timeout(30):
        while kept < len(asked):
            await asyncio.sleep(_AGAIN_S)
            kept = await peik.updates_waiting()
    scene.screen.note(narration.asleep_kept, count=len(asked), kept=kept)
    await scene.beat()
    back_at = time.time()
    scene.bot = scene.start_bot()
    await scene.watch.until(
        lambda: all(scene.answered_at(person, question) > began_at for person, question in asked),
        what="for the bot to answer all",
    )
    last_at = max(scene.answered_at(person, question) for person, question in asked)
    scene.screen.note(narration.asleep_end, count=len(asked), seconds=f"{max(0.0, last_at - back_at):.1f}")
    await scene.watch.quiet()
    await scene.end()


_REPEATS = 3
_DAY_S = 86_400


async def repeat(scene: DemoScene) -> None:
    scene.begin(narration.repeat, narration.repeat_lead)
    town, peik = scene.town, scene.stage.peik
    person = town.people[4]
    promise = await town.send(person.id, narration.orders[1])
    again = {await town.hand_in_again(promise) for _ in range(_REPEATS - 1)}
    assert again == {promise.letter_id}
    await scene.watch.quiet()
    scene.screen.note(narration.repeat_once, times=_REPEATS, letter=promise.letter_id, name=person.first_name)
    await scene.beat()
    letter = await peik.send(
        {"chat_id": person.id, "text": narration.reminder}, key="demo-reminder", send_at=time.time() + _DAY_S
    )
    scene.stage.reminders += 1
    scene.screen.note(narration.repeat_later, letter=letter, state=(await peik.fate(letter)).state)
    scene.screen.note(narration.repeat_shown, url=peik.url)
    await scene.end()


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
Chapter = Callable[[DemoScene], Awaitable[None]]
STORIES: dict[str, tuple[Chapter, ...]] = {
    "all": (flow, dark, crash, flood, blocked),
    "bot": (flow, dark, crash, asleep, blocked),
    "backend": (flow, repeat, dark, crash, flood, blocked),
}
_DRAIN_S = 2.0  # how long a demo that was stopped waits for what is under way
_COUNT_S = 6.0  # and how long for all of its counting
_AGAIN_S = 0.1


CRAWLER = "crawler"  # has a story of its own


class Showing(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown, and how."""

    story: str = "all"  # one of STORIES, or CRAWLER
    language: str = "en"
    is_once: bool = False
    is_quick: bool = False
    seed: int = 1
    has_browser: bool = False


def demo(showing: Showing) -> int:
    """The exit code: 0 unless a letter was lost, or came twice without a word about it. Raises StartError."""
    narration.speak(showing.language)
    if showing.story == CRAWLER:
        try:
            from peik.demo.crawler import crawl
        except ImportError as error:
            raise StartError(
                f"The crawler's demo needs a package that is not installed ({error.name}): {to_install('sessions')}."
            ) from None
        return crawl(showing)
    try:
        return asyncio.run(_perform(showing))
    except BrokenPipeError:  # `peik demo | head`: nobody reads on, and all is cleared away
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


async def _perform(showing: Showing) -> int:
    interruptions = Interruptions()
    screen = Screen()
    with tempfile.TemporaryDirectory(prefix="peik-demo-") as folder:
        stage = DemoStage(Path(folder), seed=showing.seed)
        scene = DemoScene(stage, screen, scale=QUICK if showing.is_quick else FULL, seed=showing.seed)
        try:
            is_whole = await interruptions.run(_play(scene, showing))
            if not is_whole:
                screen.say(f"\n{narration.stopping}")
            await interruptions.run(_count(scene) if is_whole else _count_what_there_is(scene))
        except (Stuck, Unanswered, DemoDeclined) as trouble:
            raise StartError(str(trouble)) from None
        finally:
            try:
                screen.close()
            finally:
                await stage.close()
    counts = scene.book.counts(is_over=is_whole)
    _tell(screen, counts, number=scene.chapters)
    if not is_whole and scene.book.open_promises():
        return 1 if counts.lost else 0  # stopped before Peik could be asked about every letter
    return 0 if counts.is_good else 1


async def _play(scene: DemoScene, showing: Showing) -> None:
    """From the first process to the last chapter; then on and on, unless once is enough."""
    screen, stage = scene.screen, scene.stage
    story = STORIES[showing.story]
    scene.chapters = len(story) + (dark in story) + 1  # the dark has its end as a chapter of its own; and the counts
    screen.open(is_once=showing.is_once)
    screen.say(narration.starting)
    await stage.open()
    await scene.town.settle_in()
    screen.say(narration.started, sim_url=stage.sim.url, peik_url=stage.peik.url, pid=stage.peik_pid)
    if showing.has_browser and await asyncio.to_thread(webbrowser.open, f"{stage.peik.url}/admin#key={stage.peik.key}"):
        scene.look = narration.look_opened
    try:
        async with asyncio.TaskGroup() as group:
            scene.start_bot = lambda: group.create_task(scene.town.run_bot())
            scene.bot = scene.start_bot()
            watching = group.create_task(scene.watch.run())
            for chapter in story:
                await chapter(scene)
            if not showing.is_once:
                await encore(scene)
            for task in (watching, scene.bot):
                task.cancel()
    except BaseExceptionGroup as errors:
        raise _first(errors) from None


async def _count(scene: DemoScene) -> None:
    """Ask Peik about every letter, then read the ledger to its end."""
    await scene.audit()
    while arrivals := await scene.stage.sim.arrivals(scene.book.ledger_number):
        scene.book.arrived(arrivals)


async def _count_what_there_is(scene: DemoScene) -> None:
    """The same in the middle of anything: Telegram may be dark and Peik dead. What takes too long stays uncounted."""
    if scene.book.is_empty:
        return
    with contextlib.suppress(TimeoutError, Unanswered):
        async with asyncio.timeout(_COUNT_S):
            await scene.stage.sim.end_faults()
            if not scene.stage.is_peik_up:
                await scene.stage.start_peik()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_DRAIN_S):
                    await _drained(scene)
            await _count(scene)


async def _drained(scene: DemoScene) -> None:
    while True:
        with contextlib.suppress(Unanswered):
            if not (await scene.stage.peik.stats()).unfinished:
                return
        await asyncio.sleep(_AGAIN_S)


def _tell(screen: Screen, counts: DemoCounts, *, number: int) -> None:
    screen.chapter(f"{number}. {narration.counts}", narration.counts_lead)
    failed = narration.counts_failed
    if counts.failed_arrived:
        failed += narration.counts_failed_arrived.format(arrived=counts.failed_arrived)
    rows = [
        (narration.counts_accepted, counts.accepted, True),
        (narration.counts_delivered, counts.delivered, True),
        (failed, counts.failed, True),
        (narration.counts_waiting, counts.waiting, True),
        (narration.counts_lost, counts.lost, counts.lost == 0),
        (narration.counts_doubled, counts.doubled, counts.doubled <= counts.uncertain_tries),
        (narration.counts_uncertain, counts.uncertain_tries, True),
    ]
    screen.table([row for row in rows if row[0] != narration.counts_waiting or row[1]])
    screen.say("")
    screen.last(narration.last_line.format(**msgspec.structs.asdict(counts)))


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one thing that went wrong first, as itself."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class Interruptions:
    """Each signal ends the part of the performance that goes on, and only that: clearing away always happens."""

    def __init__(self) -> None:
        self._running: asyncio.Future[None] | None = None
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # under nohup a hang-up is meant to be ignored
                loop.add_signal_handler(number, self._interrupt)

    async def run(self, part: Coroutine[object, object, None]) -> bool:
        """Whether the part came to its own end."""
        self._running = asyncio.ensure_future(part)
        await asyncio.wait([self._running])
        ended, self._running = self._running, None
        if ended.cancelled():
            return False
        ended.result()
        return True

    def _interrupt(self) -> None:
        if self._running is not None:
            self._running.cancel()
