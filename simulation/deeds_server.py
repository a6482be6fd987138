"""What can happen to nodes and to the server that they share, besides what happens in every world."""

import asyncio
import contextlib
import random
from collections.abc import Coroutine
from typing import Any

import msgspec

from peik.errors import StoreUnavailable
from simulation import deeds
from simulation.deeds import HOUR_S, JUMPY_S, Deed, key, start_again
from simulation.network import Lost
from simulation.server_world import ServerNode, ServerWorld


def _node(world: ServerWorld, chance: random.Random) -> ServerNode:
    return chance.choice(world.members)


# ---- nodes ----


async def node_dies(world: ServerWorld, chance: random.Random) -> None:
    """A node dies between two awaits, and comes back before or after its leases have ended."""
    node = _node(world, chance)
    if node.process is None:
        return
    world.counts["crashes"] += 1
    await asyncio.sleep(chance.choice([0.0, chance.uniform(0.0, 0.4)]))
    node.kill()
    await asyncio.sleep(chance.choice([0.0, 0.5, 5.0, 20.0, 2 * world.lease_s]))
    start_again(node)


async def all_die(world: ServerWorld, chance: random.Random) -> None:
    """All nodes at once, as when the power of a rack goes."""
    world.counts["crashes"] += 1
    for node in world.members:
        node.kill()
    await asyncio.sleep(chance.choice([0.5, 5.0, 2 * world.lease_s, 100.0]))
    for node in world.members:
        start_again(node)


async def node_restarts(world: ServerWorld, chance: random.Random) -> None:
    """A node ends cleanly: it lets its leases go, others take them. Later it is there again."""
    node = _node(world, chance)
    if node.process is None:
        return
    world.counts["restarts"] += 1
    await node.stop()
    if not world.server.is_up or node.link != type(node.link)():
        world.counts["ends that could not be stored"] += 1
    await asyncio.sleep(chance.choice([0.0, 0.5, 5.0, 20.0]))
    start_again(node)


async def node_joins(world: ServerWorld, chance: random.Random) -> None:
    """A node more than there were, from now on."""
    world.join()


async def node_drains(world: ServerWorld, chance: random.Random) -> None:
    """Somebody asks a node to let its leases go; later it may take some again."""
    name = _node(world, chance).store_name
    if name is None:
        return
    await _ask_to_drain(world, chance, name, is_draining=True)
    await asyncio.sleep(chance.choice([0.5, 5.0, 30.0]))
    if chance.random() < 0.8:
        await _ask_to_drain(world, chance, name, is_draining=False)


async def _ask_to_drain(world: ServerWorld, chance: random.Random, name: str, *, is_draining: bool) -> None:
    asked = _node(world, chance)
    if asked.runtime is not None and asked.process is not None:
        world.note(f"{asked.process} asks {name} to {'drain' if is_draining else 'go on'}")
        asked.process.start(_quietly(asked.runtime.store.nodes.drain_node(name, is_draining=is_draining)))


async def _quietly(work: Coroutine[Any, Any, object]) -> None:
    with contextlib.suppress(StoreUnavailable):
        await work


async def zombie(world: ServerWorld, chance: random.Random) -> None:
    """A node stops for longer than its lease, and wakes when others have its bots."""
    node = _node(world, chance)
    process = node.process
    if process is None:
        return
    world.counts["zombies"] += 1
    world.note(f"{process} freezes")
    process.freeze()
    await asyncio.sleep(world.lease_s * chance.choice([0.3, 0.7, 0.9, 1.0, 1.1, 1.5, 3.0, 6.0]))
    if node.process is process:
        world.note(f"{process} wakes")
        process.thaw()


async def node_clock_jumps(world: ServerWorld, chance: random.Random) -> None:
    """The wall clock of one node is set."""
    if world.clock.mono() > JUMPY_S:
        return
    world.counts["clock jumps"] += 1
    world.judge.has_jumped = True
    _node(world, chance).clock.wall_offset_s = chance.choice([-HOUR_S, -60.0, 0.0, 60.0, HOUR_S])


# ---- ways ----


async def cut_off(world: ServerWorld, chance: random.Random) -> None:
    """A node is cut off from the server, from Telegram, or from both."""
    world.counts["partitions"] += 1
    node = _node(world, chance)
    what = chance.choice(["server", "server", "telegram", "both"])
    world.note(f"{node.name} is cut off from {what}")
    node.link.is_cut = what != "telegram"
    node.is_apart = what != "server"
    await asyncio.sleep(chance.choice([0.5, 3.0, world.lease_s, 1.3 * world.lease_s, 5 * world.lease_s]))
    node.link.is_cut = node.is_apart = False


async def bad_links(world: ServerWorld, chance: random.Random) -> None:
    """From now on the way to the server loses and delays: of one node, or of all."""
    chosen = world.members if chance.random() < 0.3 else [_node(world, chance)]
    world.counts["bad links"] += len(chosen)
    for node in chosen:
        node.link.lost_before = chance.choice([0.0, 0.03, 0.2])
        node.link.lost_after = chance.choice([0.0, 0.03, 0.2])
        node.link.lost_news = chance.choice([0.0, 0.3, 1.0])
        node.link.hangs = chance.choice([0.0, 0.5])
        node.link.delay_s = chance.choice([0.0, 0.0, 0.3, 3.0])


async def good_links(world: ServerWorld, chance: random.Random) -> None:
    """The way to the server is well again, and so are the network and Telegram."""
    for node in world.members:
        node.link.clear()
    await deeds.good_network(world, chance)


# ---- the server ----


async def server_restarts(world: ServerWorld, chance: random.Random) -> None:
    """The server dies, perhaps in the middle of a write, and is started again."""
    world.counts["server restarts"] += 1
    await _server_dies(world, chance)
    await asyncio.sleep(chance.choice([0.0, 0.5, 3.0, world.lease_s, 2 * world.lease_s]))
    world.start_server()


async def server_power_cut(world: ServerWorld, chance: random.Random) -> None:
    """The server's machine goes off. Whatever it had not synced may be gone; the nodes live on."""
    world.counts["server power cuts"] += 1
    await _server_dies(world, chance)
    await asyncio.sleep(0)
    world.cut_power()
    await asyncio.sleep(chance.choice([0.5, 3.0, world.lease_s, 3 * world.lease_s]))
    world.start_server()


async def _server_dies(world: ServerWorld, chance: random.Random) -> None:
    process = world.kill_server_after(chance.randint(1, 60)) if chance.random() < 0.6 else None
    if process is not None:
        died = asyncio.Event()
        process.when_dead(died.set)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(5.0):
                await died.wait()
    world.kill_server()


# ---- bots ----


async def guest_comes(world: ServerWorld, chance: random.Random) -> None:
    """A bot is added while nodes come and go."""
    body = msgspec.json.encode({"token": world.guest, "inbound": "off"})
    await _ask(world, "POST", "/v1/bots", body)


async def guest_goes(world: ServerWorld, chance: random.Random) -> None:
    """A bot is removed, wherever its lease is."""
    await _ask(world, "DELETE", f"/v1/bots/{world.guest.partition(':')[0]}", b"")


async def _ask(world: ServerWorld, verb: str, path: str, body: bytes) -> None:
    headers = {**key(world), "content-type": "application/json"}
    try:
        answer = await world.ask(verb, path, headers=headers, body=body)
    except Lost:
        return
    world.note(f"{verb} {path}: {answer.status}")


SERVER_DEEDS: tuple[tuple[int, Deed[ServerWorld]], ...] = (
    (30, deeds.letters),
    (4, deeds.crowd_of_letters),
    (4, deeds.edits),
    (5, deeds.drafts),
    (4, deeds.files),
    (1, deeds.group_moves),
    (3, deeds.cancel),
    (2, deeds.retry_dead),
    (18, deeds.people_write),
    (1, deeds.crowd_writes),
    (2, deeds.people_ask),
    (2, deeds.block),
    (2, deeds.unblock),
    (24, deeds.time_passes),
    (2, deeds.much_time_passes),
    (4, deeds.bad_network),
    (3, deeds.partition),
    (3, deeds.dark),
    (7, deeds.telegram_fails),
    (1, deeds.another_numbering),
    (2, deeds.numbering_turns),
    (1, deeds.rotate),
    (3, deeds.switch),
    (3, deeds.program_dies),
    (4, deeds.handler_dies),
    (1, deeds.recover),
    (2, node_clock_jumps),
    (10, node_dies),
    (3, deeds.held_and_dead),
    (3, deeds.crowded_and_dead),
    (1, all_die),
    (5, node_restarts),
    (3, node_joins),
    (3, node_drains),
    (8, zombie),
    (9, cut_off),
    (6, bad_links),
    (7, good_links),
    (4, server_restarts),
    (4, server_power_cut),
    (2, guest_comes),
    (2, guest_goes),
)
