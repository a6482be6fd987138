"""Installs the peers of Node, as the lock file has them. Without a Node the run goes on without BullMQ, and says so."""

import shutil
import subprocess
import sys
from pathlib import Path


def main() -> None:
    npm = shutil.which("npm")
    if npm is None:
        sys.stderr.write("There is no npm here: BullMQ will not be measured. Debian's is: sudo apt-get install npm\n")
        return
    # Not `npm ci`: the lock file was made where not every platform's build of an optional package is offered, and ci refuses
    # such a one. Versions are those of the lock file all the same.
    command = [npm, "install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    subprocess.run(command, cwd=Path(__file__).parent, check=True)


if __name__ == "__main__":
    main()
