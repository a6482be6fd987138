"""`make soak MINUTES=30`: 20 bots at Telegram's pace on a bad network, with a server that is killed every few minutes. Prints
what it found, and ends with code 1 if a promise was broken or the server grew."""

import argparse
import asyncio
import datetime
import sys
import tempfile
import time
from pathlib import Path

from proofs.soak.plan import long
from proofs.soak.play import soak
from proofs.soak.report import keep


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m proofs.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--write", type=Path, help="a JSON file for the figures; the plots are put beside it")
    asked = parser.parse_args()
    plan = long(asked.minutes)
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - began:8.1f}  {line}", flush=True)

    with tempfile.TemporaryDirectory(prefix="peik-soak-") as folder:
        found = asyncio.run(soak(Path(folder), plan, say))
    for name, value in found.figures.items():
        print(f"{name}: {value:,}")
    for life in found.lives:
        print(
            f"life {life['life']}, {life['seconds']} s: memory {life['memory']['words']}; handles {life['handles']['words']}"
        )
    print("every promise kept" if not found.broken else f"A PROMISE WAS BROKEN: {'; '.join(found.broken)}")
    if asked.write is not None:
        keep(asked.write, plan, found, made_on=datetime.datetime.now(datetime.UTC).date().isoformat())
    return 1 if found.broken else 0


if __name__ == "__main__":
    sys.exit(main())
