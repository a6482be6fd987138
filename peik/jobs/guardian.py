"""Stands between Peik and a job's process, so that nothing which that process starts can outlive it.

It is started as a file of its own and imports nothing of Peik: it has to be there at once, and small. On Linux it adopts whatever
loses its parent below it, daemons with sessions of their own too, so it can find and kill them all. It does that when the
process has ended, when Peik says so, and when Peik is gone: the socket to Peik then ends, however Peik died.
"""

import ctypes
import os
import select
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

UNSTARTED = "unstarted"  # what Peik hears instead of a code: the process could not be made
_PROC = "/proc"
_HAS_PROC = Path(_PROC, "self").exists()  # else there is only the process's group to kill
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_OOM_FIRST = "500"  # from 0 to 1000
_DENIED_S = 5.0  # so long we try to kill what may not be killed (a program of another user)


def main() -> None:
    life, talk, peik = (int(word) for word in sys.argv[1:4])
    os.set_inheritable(life, False)  # noqa: FBT003  it takes no names
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD):
        signal.signal(number, _wake)  # a handler, since what is ignored would be ignored by the process, too
    # A copy of Peik's end of the socket may live on in a fork of Peik. Then this signal tells that Peik is gone.
    _prctl(_PR_SET_PDEATHSIG, signal.SIGUSR1)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    woken = _waker()
    try:
        child = _start(sys.argv[4:])
    except OSError as error:
        _say(life, f"{UNSTARTED} {error.strerror}")
        return
    os.close(talk)
    code = _watch(child, life=life, woken=woken, peik=peik)
    _say(life, str(_end_all(child, code)))


def _wake(_number: int, _frame: object) -> None:
    """The waker's pipe has been written to; that is all that is wanted."""


def _waker() -> int:
    woken, waking = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(waking, False)
    signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
    return woken


def _start(command: list[str]) -> int:
    guardian = os.getpid()
    child = os.fork()
    if child:
        return child
    try:
        os.setsid()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # should somebody kill the guardian
        with suppress(OSError):  # if memory runs out, this one goes, and not Peik
            Path(_PROC, "self", "oom_score_adj").write_text(_OOM_FIRST)
        if os.getppid() == guardian:
            os.execv(command[0], command)  # noqa: S606  a list, and no shell
    finally:
        os._exit(127)


def _watch(child: int, *, life: int, woken: int, peik: int) -> int | None:
    """Wait until the process has ended (its code), or has to (None)."""
    poll = select.poll()  # select() knows no numbers above 1023, and ours are Peik's
    poll.register(life, select.POLLIN)
    poll.register(woken, select.POLLIN)
    while True:
        ready = {number for number, _ in poll.poll()}
        if woken in ready:
            os.read(woken, 4096)
        is_over = life in ready and _is_ended(life)
        code, _ = _reap(child)
        if code is not None or is_over or os.getppid() != peik:
            return code


def _is_ended(life: int) -> bool:
    try:
        return not os.read(life, 4096)
    except OSError:
        return True


def _end_all(child: int, code: int | None) -> int:
    """Kill until nothing is left below us: as long as we have a child, there may be more."""
    began_at = time.monotonic()
    wait_s = 0.001
    while True:
        ended, has_more = _reap(child)
        code = code if ended is None else ended
        if not has_more:
            break
        _kill(_children())
        is_denied = _kill(_below() if _HAS_PROC else [-child])
        if is_denied and time.monotonic() - began_at > _DENIED_S:
            break
        time.sleep(wait_s)
        wait_s = min(wait_s * 2, 0.1)
    if not _HAS_PROC:
        _kill([-child])  # the process has ended, but others of its group may not have
    return -signal.SIGKILL if code is None else code


def _kill(found: list[int]) -> bool:
    """All are stopped first: what is stopped cannot start others while we kill its neighbours. Whether none may be killed."""
    denied = 0
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in found:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue
            except PermissionError:
                denied += number == signal.SIGKILL
    return bool(found) and denied == len(found)


def _reap(child: int) -> tuple[int | None, bool]:
    """The code of the process if it has ended just now, and whether there are others that have not."""
    code: int | None = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code, False
        if pid == 0:
            return code, True
        if pid == child:
            code = os.waitstatus_to_exitcode(status)


def _children() -> list[int]:
    """Those that are our own by now. This is quick enough for what lives for a moment only and leaves another in its place."""
    with suppress(OSError):
        return [int(pid) for pid in Path(_PROC, "thread-self", "children").read_bytes().split()]
    return []


def _below() -> list[int]:
    """All that descend from us. One whose parent dies as we look may be missing: then it is ours the next time."""
    parents = _parents()
    me = os.getpid()
    found: list[int] = []
    for pid in parents:
        above = parents.get(pid)
        seen = {pid}
        while above is not None and above != me and above not in seen:
            seen.add(above)
            above = parents.get(above)
        if above == me:
            found.append(pid)
    return found


def _parents() -> dict[int, int]:
    parents: dict[int, int] = {}
    for pid in pids():
        with suppress(OSError, ValueError, IndexError):
            stat = Path(_PROC, str(pid), "stat").read_bytes()
            parents[pid] = int(stat[stat.rindex(b")") + 2 :].split()[1])  # the name before may hold anything
    return parents


def pids() -> list[int]:
    """All that are there; none where there is no /proc."""
    with suppress(OSError):
        return [int(name) for name in os.listdir(_PROC) if name.isdigit()]  # noqa: PTH208  quicker, and it may be thousands
    return []


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _say(life: int, text: str) -> None:
    with suppress(OSError):  # Peik is gone
        os.write(life, text.encode())


if __name__ == "__main__":
    main()
