"""What the tests need of the machine besides Python: looks for it, and installs it where that may be done.

`make unit` runs this before the first test. As root it takes Debian's packages, all in one go; else the PyPI package that carries
PostgreSQL. What cannot be had this way is named, and the tests that need it fail with the same words.
"""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from tests.dashboard import browser
from tests.deploy import balancers
from tests.faults import tools
from tests.store import redis_server, servers


def missing() -> list[str]:
    """Debian's packages for what is not here."""
    packages: list[str] = []
    if tools.fiu() is None or tools.faketime() is None:
        packages += tools.PACKAGES
    if redis_server.program() is None:
        packages.append(redis_server.PACKAGE)
    if servers.debian() is None and find_spec("pgserver") is None:
        packages.append(servers.PACKAGE)
    if balancers.program() is None:
        packages.append(balancers.PACKAGE)
    if browser.program() is None:
        packages += [browser.PACKAGE, browser.FONTS]
    return packages


def main() -> None:
    packages = missing()
    if packages and os.geteuid() == 0 and shutil.which("apt-get") is not None:
        _install(packages)
        packages = missing()
    if servers.PACKAGE in packages:
        pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "pgserver")
        subprocess.run(pip, check=False)
        packages = missing()
    if packages:
        sys.stderr.write(
            f"Some tests will fail here. Install what they need: sudo apt-get install {' '.join(packages)}\n"
        )


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
