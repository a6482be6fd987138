"""A job's process: hears what to do, does it, says how it ended. Whatever it leaves behind, its guardian kills."""

import faulthandler
import importlib
import io
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import spawn
from typing import Any, cast

from peik.jobs.job import BlockingJob
from peik.jobs.messages import Message, ProcessTalk, said_error, said_result

is_preparing = False  # while a script is run once more to get at its functions: it must not begin its work there


def main() -> None:
    faulthandler.enable()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, errors="backslashreplace")
    talk = ProcessTalk(int(sys.argv[1]))
    last: Message
    try:
        last = said_result(_done(talk))
    except BaseException as error:  # noqa: BLE001  it is raised again on Peik's side
        if not isinstance(error, SystemExit):
            traceback.print_exc()
        last = said_error(error)
    with suppress(OSError):  # Peik is gone, and so are we in a moment
        talk.tell(last)


def _done(talk: ProcessTalk) -> object:
    first = talk.hear()
    sys.argv[:] = first["argv"]
    if first["main"]:
        # As multiprocessing does it: a script is run again under another name, up to its `if __name__ == "__main__"`.
        global is_preparing
        is_preparing = True
        spawn.prepare(first["main"])
        is_preparing = False
    work = found(first["module"], first["name"], first["inside"])
    return work(BlockingJob(first["job"], talk.ask))


def found(module: str, name: str, inside: int) -> Callable[..., Any]:
    """A function by its name. `inside` says how many decorators have to be taken off it."""
    home = sys.modules["__main__"] if module == "__main__" else importlib.import_module(module)
    work: Any = home
    for part in [*name.split("."), *["__wrapped__"] * inside]:
        work = getattr(work, part)
    return cast(Callable[..., Any], work)
