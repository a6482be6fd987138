"""What `peik load --find-limit --write` has measured, as a small file that the doctor reads instead of assuming."""

from pathlib import Path

import msgspec

SUFFIX = ".load.json"  # beside the database, or in PEIK_HOME: there the doctor looks by itself


class LoadFigure(msgspec.Struct, frozen=True, kw_only=True):
    """Letters a second, answers of bots among them, that this machine kept up with."""

    letters_per_s: float
    store: str
    measured_at: str  # ISO 8601
    machine: str = ""


def write_load_figure(path: Path, figure: LoadFigure) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(figure), indent=1) + b"\n")


def read_load_figure(path: Path) -> LoadFigure | None:
    """None if there is none. Raises ValueError if it is something else."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=LoadFigure)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise ValueError(f"{path} is no figure of `peik load`: {error}") from None
