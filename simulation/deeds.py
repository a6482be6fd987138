"""What can happen in the seeded world. Each deed has a stream of chance of its own: one more or less leaves the others be."""

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from peik.errors import Problem
from simulation.clients import DraftWriter
from simulation.network import Lost
from simulation.node import Node
from simulation.world import FORUM, GROUP, OLD_GROUP, SERVERS, World

HOUR_S = 3600.0
PEOPLE = 5
KEYS_S = 40 * HOUR_S  # a life is shorter than idempotency keys are kept,
JUMPY_S = 20 * HOUR_S  # also by a clock that has jumped by a day

W = TypeVar("W", bound=World)
Deed = Callable[[W, random.Random], Coroutine[Any, Any, None]]


def _bot(world: World, chance: random.Random) -> int:
    return chance.choice(list(world.tokens))


# ---- letters ----


async def letters(world: World, chance: random.Random) -> None:
    """A back-end sends some, to one chat or to several."""
    backend = chance.choice(world.backends)
    bot_id = _bot(world, chance)
    places = [
        (chance.randint(1, PEOPLE), 0),
        (chance.choice([OLD_GROUP, chance.randint(1, PEOPLE)]), 0),
        (GROUP, 0),
        (FORUM, chance.choice([0, 7, 8])),
    ]
    chosen = chance.choice([places[:1], places[:2], places])
    door = chance.choice(["rest", "rest", "gateway"])
    for _ in range(chance.choice([1, 2, 3, 6])):
        chat, thread = chance.choice(chosen)
        priority = None if door == "gateway" else chance.choice([0, 0, 0, 1, 2, -1])
        promise = world.promise(
            bot_id=bot_id,
            chat=chat,
            thread=thread,
            priority=priority,
            key=None if chance.random() < 0.15 else f"key-{chance.getrandbits(48):x}",
            is_at_most_once=door == "rest" and chance.random() < 0.2,
            is_hooked=door == "rest" and chance.random() < 0.2,
            send_at_ms=_later(world, chance, 0.1) if door == "rest" else None,
            expires_at_ms=_later(world, chance, 0.07) if door == "rest" else None,
        )
        assert promise is not None
        backend.order(promise, door)
        if promise.key is not None and chance.random() < 0.05:
            # The same key for another bot is another letter.
            twin = world.promise(
                bot_id=_other(world, bot_id), chat=chat, thread=thread, priority=priority, key=promise.key
            )
            assert twin is not None
            backend.order(twin, door)


def _other(world: World, bot_id: int) -> int:
    return next(other for other in world.tokens if other != bot_id)


def _later(world: World, chance: random.Random, likely: float) -> int | None:
    if chance.random() >= likely:
        return None
    return world.clock.wall_ms() + chance.choice([2_000, 20_000, 300_000])


async def crowd_of_letters(world: World, chance: random.Random) -> None:
    """More for one chat than its pace and its window take at once."""
    backend, bot_id = chance.choice(world.backends), _bot(world, chance)
    chat = chance.choice([1, 2, GROUP])
    for number in range(chance.choice([12, 30])):
        promise = world.promise(bot_id=bot_id, chat=chat, key=f"crowd-{chance.getrandbits(48):x}-{number}")
        assert promise is not None
        backend.order(promise, "rest")


async def edits(world: World, chance: random.Random) -> None:
    """A bot changes one message several times; what still waits gives way to what is newer."""
    done = [one for one in world.promises if one.letter_id is not None and one.method == "sendMessage"]
    if not done:
        return
    target = chance.choice(done)
    backend = world.backends[0]  # the same for all edits: only then is one of them the last
    for _ in range(chance.choice([1, 3, 5])):
        promise = world.promise(
            bot_id=target.bot_id,
            chat=target.chat,
            thread=target.thread,
            priority=target.priority,
            method="editMessageText",
            target=target,
            key=f"edit-{chance.getrandbits(48):x}",
            expires_at_ms=_later(world, chance, 0.2),
        )
        assert promise is not None
        backend.order(promise, "rest")


async def drafts(world: World, chance: random.Random) -> None:
    """A bot uses what it has just said, sent or not: it changes it, answers it, takes it back. Mostly while Telegram is dark."""
    if chance.random() < 0.7:
        world.telegram.outage(chance.choice([3.0, 8.0, 20.0, 60.0]))
    for _ in range(chance.randint(1, 3)):
        draft = world.draft(bot_id=_bot(world, chance), chat=chance.randint(1, PEOPLE))
        writer = DraftWriter(world, draft)
        if not await writer.send():
            continue
        for number in range(1, chance.choice([2, 3, 4])):
            match chance.choice(["edit", "edit", "answer", "take back"]):
                case "edit":
                    await writer.edit(f"{draft.name} {number}")
                case "answer":
                    await writer.answer()
                case _:
                    await writer.take_back()
                    break


async def files(world: World, chance: random.Random) -> None:
    """A bot sends a file; it lies beside the store until it is sent."""
    for _ in range(chance.randint(1, 3)):
        promise = world.promise(
            bot_id=_bot(world, chance),
            chat=chance.randint(1, PEOPLE),
            priority=None,
            method="sendDocument",
            key=f"file-{chance.getrandbits(48):x}",
        )
        assert promise is not None
        chance.choice(world.backends).order(promise, "gateway")


async def group_moves(world: World, chance: random.Random) -> None:
    """A group becomes a supergroup: what waits for it goes to the new id."""
    if world.telegram.chats[OLD_GROUP].migrated_to is None:
        moved = world.telegram.migrate(OLD_GROUP)
        world.telegram.chats[moved].is_lenient = True


async def cancel(world: World, chance: random.Random) -> None:
    """Somebody takes a letter back. What is taken back is never sent afterwards."""
    waiting = [one for one in world.promises if one.letter_id is not None and not one.deliveries]
    if not waiting:
        return
    promise = chance.choice(waiting)
    promise.is_retried = True
    try:
        answer = await world.ask("DELETE", f"/v1/letters/{promise.letter_id}", headers=key(world))
    except Lost:
        return
    world.note(f"cancel of {promise.name}: {answer.status}")


async def retry_dead(world: World, chance: random.Random) -> None:
    """Somebody sends all dead letters of a bot again."""
    runtime = next((node.runtime for node in world.nodes if node.runtime is not None), None)
    bot_id = _bot(world, chance)
    if runtime is None:
        return
    for promise in world.promises:
        # Whatever has not ended well may be dead before the request is there.
        if promise.bot_id == bot_id and not world.judge.is_over_for_good(promise):
            promise.is_retried = True
    for draft in world.drafts:
        draft.is_clear = draft.is_clear and draft.bot_id != bot_id  # a dead edit may go out after a newer one
    body = b'{"bot_id":"%d"}' % bot_id
    try:
        answer = await world.ask(
            "POST", "/v1/dead/retry", headers={**key(world), "content-type": "application/json"}, body=body
        )
    except Lost:
        return
    world.note(f"retry of the dead letters of {bot_id}: {answer.status}")


def key(world: World) -> dict[str, str]:
    return {"authorization": f"Bearer {world.key}"}


# ---- people ----


async def people_write(world: World, chance: random.Random) -> None:
    """People write to the bots, and change what they wrote."""
    for _ in range(chance.randint(1, 5)):
        _write(world, chance, chance.randint(1, PEOPLE))


async def crowd_writes(world: World, chance: random.Random) -> None:
    """Many write at once: more than one page of updates."""
    for _ in range(chance.randint(90, 160)):
        _write(world, chance, chance.randint(1, PEOPLE))


def _write(world: World, chance: random.Random, user: int) -> None:
    bot_id = _bot(world, chance)
    message = world.telegram.write(bot_id, user, f"written {chance.getrandbits(32):x}")
    if chance.random() < 0.1:
        message_id = message["message_id"]
        assert isinstance(message_id, int)
        world.telegram.edit(bot_id, user, message_id, f"edited {chance.getrandbits(32):x}")


async def people_ask(world: World, chance: random.Random) -> None:
    """Queries that must be answered soon, and expire soon."""
    for _ in range(chance.randint(1, 3)):
        world.telegram.ask(_bot(world, chance), chance.randint(1, PEOPLE), chance.choice(["inline", "pre_checkout"]))


async def block(world: World, chance: random.Random) -> None:
    """Somebody stops a bot."""
    world.telegram.block(_bot(world, chance), chance.randint(1, PEOPLE))


async def unblock(world: World, chance: random.Random) -> None:
    """Somebody lets a bot in again."""
    world.telegram.unblock(_bot(world, chance), chance.randint(1, PEOPLE))


# ---- time ----


async def time_passes(world: World, chance: random.Random) -> None:
    """Nothing happens for a while."""
    await asyncio.sleep(chance.choice([0.1, 0.5, 1.0, 3.0, 10.0, 40.0]))


async def much_time_passes(world: World, chance: random.Random) -> None:
    """Nothing happens for minutes, or an hour."""
    await asyncio.sleep(chance.choice([100.0, 200.0, HOUR_S if len(world.nodes) == 1 else 200.0]))


async def clock_jumps(world: World, chance: random.Random) -> None:
    """The wall clock of the machine is set, back or forward, by up to a day."""
    if world.clock.mono() > JUMPY_S:
        return
    world.counts["clock jumps"] += 1
    world.judge.has_jumped = True
    world.clock.wall_offset_s = chance.choice([-HOUR_S, 0.0, 0.0, 60.0, HOUR_S, 24 * HOUR_S])


# ---- the network and Telegram ----


async def bad_network(world: World, chance: random.Random) -> None:
    """From now on connections are refused, requests and answers lost, reset or late."""
    weather = world.weather
    weather.refused = chance.choice([0.0, 0.0, 0.3])
    weather.lost_before = chance.choice([0.0, 0.1, 0.4])
    weather.lost_after = chance.choice([0.0, 0.1, 0.4])
    weather.hangs = chance.choice([0.0, 0.5, 1.0])
    weather.delay_s = chance.choice([0.0, 0.2, 2.0])


async def partition(world: World, chance: random.Random) -> None:
    """Nothing gets through to Telegram, or to Peik, for a while."""
    world.counts["partitions"] += 1
    world.weather.is_cut = True
    await asyncio.sleep(chance.choice([0.5, 5.0, 40.0, 200.0]))
    world.weather.is_cut = False


async def good_network(world: World, chance: random.Random) -> None:
    """The network and Telegram are well again."""
    world.weather.clear()
    world.telegram.faults.clear()


async def dark(world: World, chance: random.Random) -> None:
    """Telegram refuses every connection for a while."""
    world.counts["outages"] += 1
    world.telegram.outage(chance.choice([1.0, 5.0, 30.0, 90.0, 600.0]))


async def telegram_fails(world: World, chance: random.Random) -> None:
    """5xx, 429, silence, garbage, half answers, late effects: of one method or of all."""
    kinds = ["error", "hang", "lose_before", "lose_after", "garbage", "truncate", "flood", "slow", "late"]
    methods = [None, "sendMessage", "sendMessage", "getUpdates", "setWebhook", "deleteWebhook", "getWebhookInfo"]
    world.counts["faults"] += 1
    world.telegram.faults.add(
        chance.choice(kinds),
        method=chance.choice(methods),
        probability=chance.choice([0.2, 0.5, 1.0]),
        seconds=chance.choice([2.0, 20.0, 100.0]),
        after=chance.random() < 0.5,
        retry_after=chance.choice([2, 7]),
        most_s=chance.choice([1.0, 40.0]),
    )


async def another_numbering(world: World, chance: random.Random) -> None:
    """As after a silent week: there is nothing left of the old one."""
    queue = world.queues[_bot(world, chance)]
    if queue.size == 0:
        queue._tail_id = chance.randint(2_000_001, 1_000_000_000)  # noqa: SLF001  Telegram does it, and nobody asks


async def numbering_turns(world: World, chance: random.Random) -> None:
    """A new numbering begins, lower, while updates of the old one still wait: one page holds both."""
    bot_id = _bot(world, chance)
    queue = world.queues[bot_id]
    world.telegram.faults.add("error", bot=bot_id, method="getUpdates", seconds=2.0)
    for is_new in (False, True):
        if is_new and queue.size:
            queue._tail_id = max(1, queue.head_id - chance.randint(10, 50_000))  # noqa: SLF001  as above
        for _ in range(chance.randint(1, 3)):
            world.telegram.write(bot_id, chance.randint(1, PEOPLE), f"written {chance.getrandbits(32):x}")
    await asyncio.sleep(5.0)


async def rotate(world: World, chance: random.Random) -> None:
    """The owner has a new token made; Peik hears of it a while later."""
    bot_id = _bot(world, chance)
    world.tokens[bot_id] = world.telegram.revoke(bot_id)
    await asyncio.sleep(chance.choice([0.0, 5.0, 100.0]))
    await _patch(world, bot_id, b'{"token":"%b"}' % world.tokens[bot_id].encode())


async def switch(world: World, chance: random.Random) -> None:
    """A bot is switched between polling, webhook and nothing."""
    way = chance.choice(["polling", "polling", "webhook", "webhook", "off"])
    await _patch(world, _bot(world, chance), b'{"inbound":"%b"}' % way.encode())


async def _patch(world: World, bot_id: int, body: bytes) -> None:
    headers = {**key(world), "content-type": "application/json"}
    try:
        answer = await world.ask("PATCH", f"/v1/bots/{bot_id}", headers=headers, body=body)
    except Lost:
        return
    world.note(f"change of {bot_id}: {answer.status}")


# ---- processes and the disk ----


async def crash(world: World, chance: random.Random) -> None:
    """A process dies between two awaits, or in the middle of a write to the disk."""
    node = chance.choice(world.nodes)
    if node.process is None:
        return
    world.counts["crashes"] += 1
    if chance.random() < 0.5:
        await asyncio.sleep(chance.choice([0.0, chance.uniform(0.0, 0.4)]))
        node.kill()
    else:
        await _dies_writing(world, chance, node, within_s=20.0)
        node.kill()
    await _down(world, chance, node)


async def _dies_writing(world: World, chance: random.Random, node: Node, *, within_s: float) -> None:
    """In the middle of one of its next writes to the disk, if it makes so many in time."""
    process = node.process
    assert process is not None
    died = asyncio.Event()
    world.disk.kill_after(process.name, chance.randint(1, 60), lambda: node.died(process))
    process.when_dead(died.set)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            await died.wait()


async def _falls(world: World, chance: random.Random, node: Node | None) -> None:
    """It dies now, and is soon there again."""
    world.judge.look_at_holds()
    if node is None or node.process is None:
        return
    world.counts["crashes"] += 1
    node.kill()
    await asyncio.sleep(chance.choice([0.0, 0.5, 3.0]))
    start_again(node)


def start_again(node: Node) -> None:
    """Unless somebody else did."""
    if node.process is None:
        node.start()


def _sender(world: World, bot_id: int) -> Node | None:
    """The node that sends for a bot."""
    runtime = world.holder(bot_id)
    return next((node for node in world.nodes if runtime is not None and node.runtime is runtime), None)


async def held_and_dead(world: World, chance: random.Random) -> None:
    """Telegram asks for a long pause: for chats, or for the whole bot. Whoever heard it dies."""
    bot_id = _bot(world, chance)
    world.telegram.faults.add(
        "flood",
        bot=bot_id,
        method="sendMessage",
        seconds=chance.choice([0.5, 3.0]),
        retry_after=chance.choice([40, 300]),
    )
    for chat in chance.sample(range(1, PEOPLE + 1), 3):
        promise = world.promise(bot_id=bot_id, chat=chat, priority=1, key=f"held-{chance.getrandbits(48):x}")
        assert promise is not None
        chance.choice(world.backends).order(promise, "rest")
    await asyncio.sleep(chance.uniform(1.0, 4.0))
    await _falls(world, chance, _sender(world, bot_id))


async def crowded_and_dead(world: World, chance: random.Random) -> None:
    """A group gets about what a minute allows. Whoever sent it dies with some of it in flight, and there is more to come."""
    bot_id, weather = _bot(world, chance), world.weather
    for number in range(26):
        promise = world.promise(
            bot_id=bot_id, chat=FORUM, thread=chance.choice([0, 7, 8]), key=f"minute-{chance.getrandbits(48):x}"
        )
        assert promise is not None
        world.backends[number % 2].order(promise, "rest")
    await asyncio.sleep(chance.uniform(14.0, 22.0))
    weather.lost_after = weather.hangs = 1.0
    await asyncio.sleep(chance.uniform(1.0, 3.0))
    await _falls(world, chance, _sender(world, bot_id))
    weather.clear()
    await asyncio.sleep(10.0)


async def stumbling_start(world: World, chance: random.Random) -> None:
    """A process dies with letters in hand. While the next one takes them up, the disk fails for a moment."""
    world.weather.lost_after = world.weather.hangs = 1.0
    for _ in range(3):
        await letters(world, chance)
    await asyncio.sleep(chance.uniform(0.3, 1.0))
    await _falls(world, chance, _sender(world, _bot(world, chance)))
    world.weather.clear()
    if chance.random() < 0.5:
        await asyncio.sleep(chance.choice([0.0, chance.uniform(0.0, 0.3)]))
        world.disk.fails = chance.choice([0.05, 0.15, 1.0])
    else:
        world.disk.reading_fuse = chance.randint(2, 50)
    await asyncio.sleep(chance.uniform(0.3, 3.0))
    world.heal_disk()


async def stumbling_readings(world: World, chance: random.Random) -> None:
    """Now and then one reading fails: whichever is made at that moment."""
    for _ in range(4):
        await chance.choice([letters, edits, files, people_write])(world, chance)
        world.disk.reading_fuse = chance.randint(2, 12)
        await asyncio.sleep(chance.uniform(0.2, 2.0))
    world.heal_disk()


async def power_cut(world: World, chance: random.Random) -> None:
    """The machine goes off. Whatever was not synced may be gone."""
    world.counts["power cuts"] += 1
    node = chance.choice(world.nodes)
    if node.process is not None and chance.random() < 0.6:
        await _dies_writing(world, chance, node, within_s=5.0)  # a write that was never synced stands in the file then
    else:
        await asyncio.sleep(chance.uniform(0.0, 0.4))
    for node in world.nodes:
        node.kill()
    world.cut_power()
    await asyncio.sleep(chance.choice([0.5, 5.0, 100.0]))
    world.heal_disk()
    for node in world.nodes:
        node.start()


async def restart(world: World, chance: random.Random) -> None:
    """A process is told to end, ends cleanly, and another starts."""
    node = chance.choice(world.nodes)
    if node.process is None:
        return
    world.counts["restarts"] += 1
    await node.stop()
    if not world.is_disk_well:
        world.counts["ends that could not be stored"] += 1
    await _down(world, chance, node)


async def _down(world: World, chance: random.Random, node: Node) -> None:
    waits_s = [0.0, 0.5, 0.5, 5.0, 5.0, 5.0, 20.0, 100.0, 100.0, 100.0, 2 * HOUR_S, 30 * HOUR_S]
    wait_s = chance.choice(waits_s if len(world.nodes) == 1 else waits_s[:8])
    if world.clock.mono() + wait_s > (JUMPY_S if world.judge.has_jumped else KEYS_S):
        wait_s = 5.0  # a sender that repeats after its key is forgotten would be a new one
    await asyncio.sleep(wait_s)
    for _ in range(chance.randint(0, 3)):
        _write(world, chance, chance.randint(1, PEOPLE))
    if len(world.nodes) == 1 and chance.random() < 0.15:
        world.api_root = chance.choice(SERVERS)  # another server: another numbering of updates
    start_again(node)


async def freeze(world: World, chance: random.Random) -> None:
    """A process stops for a while, as a machine that swaps or a virtual one that moves does, and wakes too late."""
    node = chance.choice(world.nodes)
    process = node.process
    if process is None:
        return
    world.counts["zombies"] += 1
    world.note(f"{process} freezes")
    process.freeze()
    await asyncio.sleep(chance.choice([1.0, 10.0, 70.0, 300.0]))
    if node.process is process:
        world.note(f"{process} wakes")
        process.thaw()


async def disk_fails(world: World, chance: random.Random) -> None:
    """From now on writes and syncs fail, seldom or always; and readings too, perhaps."""
    world.counts["disk failures"] += 1
    world.disk.fails = chance.choice([0.003, 0.03, 0.3, 1.0])
    world.disk.reads_fail = chance.choice([0.0, 0.0, 0.03, 0.3])


async def disk_fills(world: World, chance: random.Random) -> None:
    """There is no room left on the disk, or little."""
    world.counts["full disks"] += 1
    world.disk.room_bytes = chance.choice([0, 5_000, 50_000])


async def disk_is_well(world: World, chance: random.Random) -> None:
    """The disk works again."""
    world.heal_disk()


# ---- programs ----


async def program_dies(world: World, chance: random.Random) -> None:
    """A bot's own program is away for a while, and forgets how far it was."""
    program = chance.choice(world.programs)
    program.up(False)  # noqa: FBT003
    await asyncio.sleep(chance.choice([0.5, 5.0, 80.0]))
    program.up(True)  # noqa: FBT003


async def handler_dies(world: World, chance: random.Random) -> None:
    """People write to a bot that polls. It confirms what they wrote, and dies in the middle of its handlers."""
    polling = [program for program in world.programs if program.kind == "poll" and program.is_up]
    if not polling:
        return
    program = chance.choice(polling)
    world.counts["handlers killed"] += 1
    for _ in range(chance.randint(1, 2)):
        for _ in range(chance.randint(1, 4)):
            world.telegram.write(program.bot_id, chance.randint(1, PEOPLE), f"written {chance.getrandbits(32):x}")
        await asyncio.sleep(chance.choice([0.1, 0.6, 2.0, 8.0]))
        program.up(False)  # noqa: FBT003
        await asyncio.sleep(chance.choice([0.1, 1.0, 5.0, 40.0]))
        program.up(True)  # noqa: FBT003


async def recover(world: World, chance: random.Random) -> None:
    """Somebody asks for everything that Telegram has kept."""
    try:
        bot_id = _bot(world, chance)
        runtime = world.holder(bot_id)
        node = next((node for node in world.nodes if node.runtime is runtime), None)
        if runtime is not None and node is not None and node.process is not None:
            node.process.start(_recover(runtime, bot_id))
    except Problem:
        return


async def _recover(runtime: Any, bot_id: int) -> None:
    try:
        await runtime.inbox.service.recover(bot_id)
    except Problem:
        return


DEEDS: tuple[tuple[int, Deed[World]], ...] = (
    (30, letters),
    (4, crowd_of_letters),
    (4, edits),
    (5, drafts),
    (4, files),
    (1, group_moves),
    (3, cancel),
    (2, retry_dead),
    (18, people_write),
    (1, crowd_writes),
    (2, people_ask),
    (2, block),
    (2, unblock),
    (24, time_passes),
    (3, much_time_passes),
    (2, clock_jumps),
    (8, bad_network),
    (5, partition),
    (6, good_network),
    (4, dark),
    (9, telegram_fails),
    (1, another_numbering),
    (2, numbering_turns),
    (1, rotate),
    (4, switch),
    (8, crash),
    (3, held_and_dead),
    (3, crowded_and_dead),
    (4, stumbling_start),
    (3, stumbling_readings),
    (4, power_cut),
    (3, restart),
    (4, freeze),
    (4, disk_fails),
    (2, disk_fills),
    (5, disk_is_well),
    (4, program_dies),
    (5, handler_dies),
    (1, recover),
)
