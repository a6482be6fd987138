"""`make bench-quick`: the most telling rows beside their ceilings alone, in under two minutes on two cores.

No peers and no servers: goals that rest on a peer are held against the figure written down in bench/budget.py, and say so.
"""

import argparse
import sys

from rich.console import Console

from bench.__main__ import finish
from bench.contest import QUICK
from bench.ground import LETTERS
from bench.running import RESULTS, Terms, run_rows

ROUNDS = 3
SECONDS_MAX = 110.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.quick", description="Measure Peik beside its ceilings.")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="at most; fewer when two minutes would not do")
    parser.add_argument("--letters", type=int, default=LETTERS)
    parser.add_argument("--only", nargs="+", choices=list(QUICK), help="only these rows")
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 190)
    rows = {name: tasks for name, tasks in QUICK.items() if not options.only or name in options.only}
    terms = Terms(rounds=options.rounds, letters=options.letters, seconds_max=SECONDS_MAX, with_servers=False)
    run = run_rows(rows, terms, console)
    finish(console, run, RESULTS, "quick")
    return 1 if run.failures else 0


if __name__ == "__main__":
    sys.exit(main())
