"""How many sendMessage a second the server answers: `python -m tests.sim.speed [count] [--no-uvloop]`."""

import asyncio
import json
import sys
import time

import psutil
import uvloop

CONNECTIONS = 32
REQUEST = (
    b"POST /bot700042:AAE-secret/sendMessage HTTP/1.1\r\nHost: sim\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
)


async def talk(port: int, count: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for number in range(count):
        body = json.dumps({"chat_id": 1000 + number % 500, "text": "x" * 180 + str(number)}).encode()
        writer.write(REQUEST % (len(body), body))
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        await reader.readexactly(int(head.rsplit(b": ", 1)[1]))
    writer.close()


async def main(count: int, flags: list[str]) -> None:
    command = [sys.executable, "-m", "peik.testing", "--config", '{"limits": {"on": false}}', *flags]
    program = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert program.stdout is not None
    port = int(json.loads(await program.stdout.readline())["url"].rpartition(":")[2])
    began = time.perf_counter()
    await asyncio.gather(*(talk(port, count // CONNECTIONS) for _ in range(CONNECTIONS)))
    seconds = time.perf_counter() - began
    spent = psutil.Process(program.pid).cpu_times()
    sys.stdout.write(f"{count / seconds:,.0f} a second, {count / (spent.user + spent.system):,.0f} a CPU second\n")
    program.terminate()
    await program.wait()


if __name__ == "__main__":
    numbers = [int(text) for text in sys.argv[1:] if text.isdecimal()]
    uvloop.run(main(numbers[0] if numbers else 64_000, [text for text in sys.argv[1:] if text.startswith("--")]))
