"""What the processes of the tests do. Each is found by its name, as a user's own functions are."""

import ctypes
import errno
import functools
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from peik import StoreUnavailable
from peik.jobs.job import BlockingJob
from peik.jobs.outcome import HostShut, JobHopeless, JobLater
from tests.jobs.witness import await_all, come

# A daemon: a session of its own, no parent, nothing in its environment, deaf to what is polite.
_DAEMON = """
import os, signal, sys, time
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
os.environ.clear()
os.write(int(sys.argv[1]), b".")
time.sleep(600)
"""


def echo(job: BlockingJob) -> dict[str, Any]:
    job.progress(0.5, "half")
    letter = job.send_text(f"hello {job.user}")
    return {
        "params": job.params,
        "attempt": job.attempt,
        "letter": letter,
        "folder": str(job.folder),
        "pid": os.getpid(),
    }


def first_to_go(job: BlockingJob) -> int:
    """Where it stands when memory runs out."""
    return int(Path("/proc/self/oom_score_adj").read_text())


def nothing(job: BlockingJob) -> None:
    """Returns nothing."""


def where(job: BlockingJob) -> dict[str, str]:
    with tempfile.NamedTemporaryFile() as file:
        return {"cwd": str(Path.cwd()), "temporary": str(Path(file.name).parent)}


def raises(job: BlockingJob) -> None:
    match job.params["what"]:
        case "hopeless":
            raise JobHopeless("There is no such video.")
        case "later":
            raise JobLater(90, "The site asks to wait.")
        case "shut":
            raise HostShut("example.com", 12.0)
        case "full":
            raise OSError(errno.ENOSPC, "No space left on device")
        case "store":
            raise StoreUnavailable(code="store_down", detail="The store is away.")
        case "exit":
            sys.exit(3)
        case "odd":
            raise ValueError("caf\udce9 " + "x" * 100_000)
    raise LookupError("nothing of that name")


def asks_wrongly(job: BlockingJob) -> str:
    try:
        job.send_text("refused")
    except StoreUnavailable as error:
        return f"{error.code}: {error.detail}"
    return "no error"


def many_threads(job: BlockingJob) -> list[int]:
    letters: list[int] = []
    threads = [threading.Thread(target=lambda n=n: letters.append(job.send_text(str(n)))) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(letters)


def long_result(job: BlockingJob) -> str:
    return "x" * job.params["chars"]


def no_json(job: BlockingJob) -> object:
    return object()


def long_question(job: BlockingJob) -> str:
    try:
        job.send_text("x" * 2_000_000)
    except ValueError as error:
        return str(error)
    return "taken"


def talkative(job: BlockingJob) -> str:
    for number in range(20_000):
        print("line", number, "x" * 60)  # noqa: T201
    sys.stderr.write("y" * 1_000_000)
    print("\nthe very end")  # noqa: T201
    return "said"


def ends(job: BlockingJob) -> None:
    print("I have had enough")  # noqa: T201
    sys.stdout.flush()
    os._exit(7)


def killed(job: BlockingJob) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def crashes(job: BlockingJob) -> None:
    ctypes.string_at(0)


def scribbles(job: BlockingJob) -> None:
    """Writes into whatever is open."""
    for number in range(3, 64):
        try:
            os.write(number, b"\xff" * 64)
        except OSError:
            continue
    time.sleep(600)


def deaf(job: BlockingJob) -> None:
    """Ends for nobody."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    come(job.params["pipe"])
    job.send_text("ready")
    time.sleep(600)


def sleeps(job: BlockingJob) -> None:
    time.sleep(600)


def family(job: BlockingJob) -> str:
    """Leaves a daemon, a child and children of that one, and perhaps waits."""
    pipe = come(job.params["pipe"])
    subprocess.run([sys.executable, "-c", _DAEMON, str(pipe)], check=True, pass_fds=[pipe])
    subprocess.Popen(["sh", "-c", f"sleep 600 & printf . >&{pipe}; sleep 600"], pass_fds=[pipe])
    await_all(pipe, 3)
    job.send_text("ready")
    if job.params["waits"]:
        time.sleep(600)
    return "done"


# Each lives for milliseconds and leaves another one in its place. Not for long: if nobody kills and reaps them, as when a test
# fails, they must not use up all numbers of processes that the machine has.
_HOPPER = """
import os, time
end = time.monotonic() + 10
while time.monotonic() < end:
    if os.fork():
        os._exit(0)
    time.sleep(0.004)
"""


def restless(job: BlockingJob) -> None:
    pipe = come(job.params["pipe"])
    for _ in range(3):
        subprocess.run([sys.executable, "-c", _HOPPER], check=True, pass_fds=[pipe])
    job.send_text("ready")
    time.sleep(600)


def lonely(job: BlockingJob) -> None:
    """Its guardian is killed."""
    pipe = come(job.params["pipe"])
    subprocess.Popen(["sh", "-c", f"printf . >&{pipe}; exec sleep 600"], start_new_session=True, pass_fds=[pipe])
    await_all(pipe, 2)
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(600)


def hangs_after(job: BlockingJob) -> str:
    threading.Thread(target=time.sleep, args=(600,)).start()
    return "done"


def forks(job: BlockingJob) -> int:
    """What it forks cannot talk in its name."""
    pid = os.fork()
    if pid == 0:
        try:
            job.progress(0.1)
        except Exception:  # noqa: BLE001
            os._exit(11)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def decorated(work: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(work)
    def outer(*_: object) -> str:
        return "the decorator"

    return outer


@decorated
def inner(job: BlockingJob) -> str:
    return "the function itself"


class Works:
    @staticmethod
    def still(job: BlockingJob) -> str:
        return "a static method"

    def bound(self, job: BlockingJob) -> str:
        return "a bound one"


async def asynchronous(job: BlockingJob) -> None:
    """Not for a process."""


def outer_of() -> Callable[..., Any]:
    def local(job: BlockingJob) -> None:
        """Within another one."""

    return local


def fills_and_crashes(job: BlockingJob) -> None:
    for number in range(5):
        (job.folder / str(number)).mkdir()
        (job.folder / str(number) / "part").write_bytes(b"x" * 100)
        (job.folder / str(number)).chmod(0o500)
    crashes(job)
