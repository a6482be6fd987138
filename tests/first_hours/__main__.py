"""Plays all four (or those that are named) and keeps what they printed in docs/first-hours.md."""

import asyncio
import sys
import tempfile
from pathlib import Path

from tests.first_hours.page import Said, keep
from tests.first_hours.test_first_hours import HOURS

if __name__ == "__main__":
    for name in sys.argv[1:] or HOURS:
        with tempfile.TemporaryDirectory() as folder:
            said = Said()
            try:
                asyncio.run(HOURS[name](Path(folder), said))
            finally:
                sys.stdout.write(f"{name}\n{said.text}\n")
            keep(name, said.text)
