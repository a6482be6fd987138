"""What `peik serve` says to the person who started it: where it is and what comes next, or why it cannot listen there."""

import errno
import socket
from pathlib import Path

from peik.config import Config

# Shown for as long as there is no bot: whoever starts Peik for the first time has nothing set.
_FIRST_STEPS = """\
No bot yet. What next?
  Watch it work, without a token:  {peik} demo
  Serve your bot:                  {how}
`{peik} doctor` looks whether all is well.
"""
_OPEN = "start it with {url} in place of https://api.telegram.org; Peik learns its token from it"
_CLOSED = "put BOT_TOKEN=… (from @BotFather) into the file .env here, and start Peik again; or: {peik} bots add"


def greeting(url: str, *, key_path: Path | None, bots: int, is_open: bool, peik: str = "peik") -> str:
    """`key_path` is where the admin key is kept, unless it was set; `is_open`: the gateway takes bots that it does not know;
    `peik`: how to call the command here."""
    many = "1 bot" if bots == 1 else f"{bots} bots"
    told = f"Peik listens on {url} (dashboard at /admin, API at /docs), {many}.\n"
    if key_path is not None:
        told += f"The admin key is in {key_path}.\n"
    if bots:
        return told
    how = _OPEN.format(url=url) if is_open else _CLOSED.format(peik=peik)
    return told + _FIRST_STEPS.format(how=how, peik=peik)


def own_command(called: str, *, folder: Path, on_path: str | None) -> str:
    """What to type for `peik` here. In a checkout it stands in .venv, and is not on the path of who has just run `make setup`."""
    if on_path is not None or Path(called).name != "peik":
        return "peik"
    whole = Path(called).absolute()
    return str(whole.relative_to(folder)) if whole.is_relative_to(folder) else str(whole)


def cannot_listen(config: Config, error: OSError) -> str:
    """Why not, with the setting that mends it."""
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        fix = "PEIK_HOST is no address of this machine: set 127.0.0.1 for this machine alone, 0.0.0.0 for all networks."
    elif error.errno == errno.EADDRINUSE:
        fix = "Another program listens there, perhaps another Peik. Stop it, or set PEIK_PORT to another port."
    elif error.errno in (errno.EACCES, errno.EPERM):
        fix = "This user may not have that port. Set PEIK_PORT to one from 1024 on."
    else:
        fix = "Set PEIK_HOST and PEIK_PORT to an address that is free."
    return f"Cannot listen on {config.host}:{config.port}: {error.strerror}. {fix}"
