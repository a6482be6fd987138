"""What passes through the doors: reads through the gateway, and single letters over REST, each beside a bare server."""

from bench.bare import running_bare
from bench.figures import Figures
from bench.ground import Ground
from bench.hammer import hammered, request
from bench.load import TOKEN, params
from bench.loop import run
from bench.server import serving

READS = 10_000
READERS = 32
POSTS = 10_000
CALLERS = 50


def gateway_reads(ground: Ground) -> Figures:
    """`getChat`, which the gateway passes straight on: to the stub itself, through two bare relays, through Peik."""
    many = ground.share(READS)
    reads = [request(f"/bot{TOKEN}/getChat", b'{"chat_id":1}')] * many
    warm = reads[: many // 10]

    def ask(url: str) -> float:
        run(hammered(url, warm, connections=READERS))
        return run(hammered(url, reads, connections=READERS))

    figures = {"direct_reads": ask(ground.stub)}
    for kind in ("aiohttp_relay", "lean_relay"):
        with running_bare(kind, ground.stub) as url:
            figures[kind] = ask(url)
    with serving(ground.path, ground.stub, PEIK_PACE="off") as (_, url, _):
        figures["gateway_reads"] = ask(url)
    return figures


def rest_single(ground: Ground) -> Figures:
    """One letter a request, 50 connections: FastAPI storing nothing, and Peik with Telegram paused."""
    many = ground.share(POSTS)
    bodies = [b'{"method":"sendMessage","params":%b}' % params(number) for number in range(many)]
    with running_bare("fastapi") as url:
        asked = [request("/v1/letters", body) for body in bodies]
        figures = {"fastapi": run(hammered(url, asked, connections=CALLERS, status=202))}
    with serving(ground.path, "http://127.0.0.1:9", PEIK_PACE="off") as (_, url, key):
        asked = [request("/v1/letters", body, [("Authorization", f"Bearer {key}")]) for body in bodies]
        figures["rest_50"] = run(hammered(url, asked, connections=CALLERS, status=202))
    return figures
