"""How many sendMessage a second the server answers, and how much memory it holds afterwards.

`python -m tests.sim.speed [count] [--no-uvloop]`; with `--beside FOLDER`, another checkout, both by turns in one run; with
`--html` each message has bold text, a link and a button.
"""

import argparse
import asyncio
import json
import statistics
import sys
import time
from pathlib import Path

import msgspec
import psutil
import uvloop

CONNECTIONS = 32
ROUNDS = 5
REQUEST = (
    b"POST /bot700042:AAE-secret/sendMessage HTTP/1.1\r\nHost: sim\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
)


class Run(msgspec.Struct, frozen=True):
    a_second: float
    a_cpu_second: float
    before_mib: float
    after_mib: float


PLAIN = {"text": "x" * 180}
HTML = {
    "text": f'<b>Tea</b> <a href="https://example.org">now</a> {"x" * 120}',
    "parse_mode": "HTML",
    "reply_markup": {"inline_keyboard": [[{"text": "Yes", "callback_data": "yes"}]]},
}


async def talk(port: int, count: int, message: dict[str, object]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for number in range(count):
        body = json.dumps({**message, "chat_id": 1000 + number % 500, "text": f"{message['text']}{number}"}).encode()
        writer.write(REQUEST % (len(body), body))
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        await reader.readexactly(int(head.rsplit(b": ", 1)[1]))
    writer.close()


async def measured(checkout: Path, count: int, message: dict[str, object], flags: list[str]) -> Run:
    command = [sys.executable, "-m", "peik.testing", "--config", '{"limits": {"on": false}}', *flags]
    program = await asyncio.create_subprocess_exec(*command, cwd=checkout, stdout=asyncio.subprocess.PIPE)
    assert program.stdout is not None
    port = int(json.loads(await program.stdout.readline())["url"].rpartition(":")[2])
    process = psutil.Process(program.pid)
    before = process.memory_info().rss
    began = time.perf_counter()
    await asyncio.gather(*(talk(port, count // CONNECTIONS, message) for _ in range(CONNECTIONS)))
    seconds = time.perf_counter() - began
    spent = process.cpu_times()
    after = process.memory_info().rss
    program.terminate()
    await program.wait()
    return Run(count / seconds, count / (spent.user + spent.system), before / 2**20, after / 2**20)


async def main(count: int, checkouts: dict[str, Path], message: dict[str, object], flags: list[str]) -> None:
    seen: dict[str, list[Run]] = {name: [] for name in checkouts}
    for _ in range(ROUNDS if len(checkouts) > 1 else 1):
        for name, checkout in checkouts.items():
            run = await measured(checkout, count, message, flags)
            seen[name].append(run)
            sys.stdout.write(
                f"{name}: {run.a_second:,.0f} a second, {run.a_cpu_second:,.0f} a CPU second; "
                f"{run.before_mib:,.0f} MiB before, {run.after_mib:,.0f} MiB after {count:,}\n"
            )
    if len(checkouts) > 1:
        here, beside = (statistics.median(run.a_cpu_second for run in seen[name]) for name in ("here", "beside"))
        sys.stdout.write(f"medians a CPU second: {here:,.0f} here, {beside:,.0f} beside, ratio {here / beside:.2f}\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.sim.speed", description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=64_000)
    parser.add_argument("--beside", type=Path, help="another checkout")
    parser.add_argument("--html", action="store_true", help="messages with entities and a button")
    given, flags = parser.parse_known_args()
    checkouts = {"beside": given.beside.resolve()} if given.beside is not None else {}
    checkouts["here"] = Path(__file__).resolve().parents[2]
    uvloop.run(main(given.count, checkouts, HTML if given.html else PLAIN, flags))
