"""Writes the reference pages from the tables of the code, so that they cannot be wrong. Run it after changing a table."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # the tables of this checkout, whichever is installed

    from docs.pages.writing import write

    write()
