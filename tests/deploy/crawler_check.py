"""compose.yaml as Docker Compose itself reads it, where it is at hand, and its profile `crawler` lived through as processes.

`make deploy-check` runs this: it needs root for a network of its own.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.composed import ROOT, composed
from tests.deploy.crawler_life import PASSWORDS
from tests.surroundings import OUTSIDE

ALONE, NODES = ROOT / "compose.yaml", ROOT / "deploy" / "nodes" / "compose.yaml"
NODES_ENV = {"PEIK_STORE": "redis://:x@redis:6379/0", "PEIK_ADMIN_KEY": "k", "REDIS_PASSWORD": "x"}


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root, for a network of its own")
    with tempfile.TemporaryDirectory(prefix="peik-crawler-") as folder:
        life = ["unshare", "--net", "--mount", sys.executable, "-m", "tests.deploy.crawler_life", folder]
        ran = subprocess.run(life, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
        assert ran.returncode == 0, ran.stderr
    return dict(json.loads(ran.stdout))


def test_peik_runs_on_redis_and_mongodb_as_compose_gives_them(seen: dict[str, Any]) -> None:
    parts = seen["parts"]
    assert (parts["store"]["kind"], parts["store"]["status"], parts["store"]["weak"]) == ("redis", "ok", [])
    assert (parts["archive"]["kind"], parts["archive"]["status"]) == ("mongodb", "ok")
    assert seen["ready"] == 200
    assert seen["keys"] > 0
    assert "telegram_sessions" in seen["collections"]
    assert "Traceback" not in seen["log"]


@pytest.mark.parametrize("name", ["app", "telegram-redis", "telegram-mongodb"])
def test_every_health_check_says_no_and_then_yes(name: str, seen: dict[str, Any]) -> None:
    if seen[name] is None:
        pytest.skip(f"the program that checks {name} is not here")  # mongosh is in its image
    assert seen[name] is True


def test_redis_lets_nobody_in_without_a_password(seen: dict[str, Any]) -> None:
    assert seen["refused"] is True
    assert seen["redis without a password ends with"] == 1


def test_a_signal_reaches_each_and_each_ends_in_good_order(seen: dict[str, Any]) -> None:
    assert [seen[f"{name} ends with"] for name in ("app", "telegram-redis", "telegram-mongodb")] == [0, 0, 0]


@cache
def compose() -> list[str] | None:
    """Docker Compose 2, as a plugin or on its own; DOCKER_COMPOSE names one elsewhere."""
    for command in ([OUTSIDE.get("DOCKER_COMPOSE", "")], ["docker", "compose"], ["docker-compose"]):
        if command[0] and shutil.which(command[0]):
            asked = subprocess.run([*command, "version", "--short"], capture_output=True, text=True, check=False)
            if asked.returncode == 0 and asked.stdout.lstrip("v").startswith(("2.", "3.", "4.", "5.")):
                return command
    return None


@pytest.mark.parametrize(
    ("file", "variables", "profiles"),
    [
        (ALONE, {}, ()),
        (ALONE, PASSWORDS, ("crawler",)),
        (ALONE, {"POSTGRES_PASSWORD": "x"}, ("postgres", "redis", "mongodb", "prometheus", "grafana", "bot-api")),
        (NODES, NODES_ENV, ("postgres", "redis")),
    ],
    ids=["alone", "crawler", "all", "nodes"],
)
def test_docker_compose_reads_it_as_these_tests_do(
    file: Path, variables: dict[str, str], profiles: tuple[str, ...]
) -> None:
    command = compose()
    if command is None:
        pytest.skip("Docker Compose 2 is not here")
    asked = [*command, "-f", str(file), "--env-file", os.devnull]
    for profile in profiles:
        asked += ["--profile", profile]
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **variables}
    ran = subprocess.run(
        [*asked, "config", "--format", "json"], env=environment, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    theirs, ours = json.loads(ran.stdout)["services"], composed(file, variables, *profiles)
    assert set(theirs) == set(ours)
    for name, service in ours.items():
        for what in ("environment", "command", "image", "read_only", "cap_drop", "security_opt", "profiles"):
            wanted = service.get(what)
            given = theirs[name].get(what)
            assert _dollars(given) == wanted or (what == "environment" and _holds(given, wanted)), (name, what)
        assert _dollars(theirs[name]["healthcheck"]["test"]) == service["healthcheck"]["test"], name


def test_docker_compose_brings_the_crawler_by_its_env_file_alone(tmp_path: Path) -> None:
    command = compose()
    if command is None:
        pytest.skip("Docker Compose 2 is not here")
    filled = (ROOT / ".env.crawler").read_text(encoding="utf-8")
    for name, password in PASSWORDS.items():
        filled = filled.replace(f"\n{name}=\n", f"\n{name}={password}\n")
    (tmp_path / ".env").write_text(filled, encoding="utf-8")
    asked = [*command, "-f", str(ALONE), "--env-file", str(tmp_path / ".env"), "config", "--format", "json"]
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
    ran = subprocess.run(asked, env=environment, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    services = json.loads(ran.stdout)["services"]
    assert set(services) == {"app", "telegram-redis", "telegram-mongodb"}
    assert {name: services[name]["container_name"] for name in services if name != "app"} == {
        "telegram-redis": "telegram-redis",
        "telegram-mongodb": "telegram-mongodb",
    }
    assert services["app"]["environment"]["PEIK_ARCHIVE"].startswith(
        "mongodb://admin:m0ng0@telegram-mongodb:27017/peik"
    )


def _dollars(value: Any) -> Any:
    """`config` writes a dollar twice, so that its output can be read again."""
    return [str(one).replace("$$", "$") for one in value] if isinstance(value, list) else value


def _holds(given: dict[str, str] | None, wanted: dict[str, str] | None) -> bool:
    """A .env of the checkout may add to it."""
    return (wanted or {}).items() <= (given or {}).items()
