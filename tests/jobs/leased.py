"""python -m tests.jobs.leased <seconds> <module> …: that module, as a worker whose jobs are another's so soon after its death.

By default that takes half a minute, and who lives on looks for such jobs every quarter of one; here every second.
"""

import runpy
import sys
from collections.abc import Awaitable, Callable

from peik.jobs.workers import Workers

DIES_S = "5"  # for who is to be killed: long enough for a machine that is slow until then
LIVES_S = "60"

_again = Workers._again


async def _soon(workers: Workers, what: str, every_s: float, act: Callable[[], Awaitable[None]]) -> None:
    await _again(workers, what, 1.0 if act == workers._reap else every_s, act)


if __name__ == "__main__":
    _, seconds, module, *rest = sys.argv
    defaults = Workers.__init__.__kwdefaults__
    assert defaults is not None
    defaults["lease_s"] = float(seconds)
    Workers._again = _soon
    sys.argv[1:] = rest
    runpy.run_module(module, run_name="__main__", alter_sys=True)
