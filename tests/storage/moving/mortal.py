"""`peik migrate` that kills itself at a page: python -m tests.storage.moving.mortal <moment> <kind> <count> <arguments>.

A killer that looks on from outside comes too late on a slow machine: the move may be anywhere by then, or over.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import typer

from peik.storage.cli import migrate
from peik.storage.moving import move
from peik.storage.moving.ends import MoveEnd, MoveProgress

_end_of = move.end_of


def main() -> None:
    moment, kind, count = sys.argv.pop(1), sys.argv.pop(1), int(sys.argv.pop(1))

    def mortal_end(*named: Any) -> MoveEnd:
        end = _end_of(*named)
        end.write = _mortal(end.write, moment, kind, count)  # type: ignore[method-assign]
        return end

    move.end_of = mortal_end
    typer.run(migrate)


def _mortal(
    write: Callable[[str, Sequence[Any], MoveProgress], Awaitable[None]], moment: str, kind: str, count: int
) -> Callable[[str, Sequence[Any], MoveProgress], Awaitable[None]]:
    """The page with which `count` records of a kind would be moved is the last one."""

    async def written(of: str, records: Sequence[Any], progress: MoveProgress) -> None:
        is_last = of == kind and progress.of(kind).moved.count >= count
        if is_last and moment == "before":
            _die()
        if is_last and moment == "during":
            asyncio.get_running_loop().call_later(0.001, _die)
        await write(of, records, progress)
        if is_last:
            _die()

    return written


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
