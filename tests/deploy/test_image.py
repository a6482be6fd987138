"""deploy/Dockerfile says what it should. `make deploy-check` also replays its steps and runs what they make."""

import re
import tomllib

from peik.settings.table import SETTINGS
from tests.deploy.composed import ROOT
from tests.deploy.dockerfiles import stages

BUILD, IMAGE = stages()


def test_it_is_built_in_one_stage_and_run_from_another_of_the_same_python() -> None:
    assert BUILD.base == "python:${PYTHON} AS build"
    assert IMAGE.base == "python:${PYTHON}"
    assert IMAGE.all("COPY") == ["--from=build /opt/peik /opt/peik"]
    text = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
    version = re.search(r"^ARG PYTHON=(\d+)\.(\d+)-slim-\w+@sha256:[0-9a-f]{64}$", text, re.MULTILINE)
    assert version is not None
    assert (int(version[1]), int(version[2])) >= (3, 11)


def test_a_full_server_is_the_default_and_every_extra_is_one() -> None:
    extras = BUILD.pairs("ARG")["EXTRAS"].split(",")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(extras) <= set(project["optional-dependencies"])
    assert {"postgres", "redis", "mongo", "sessions", "alerts"} <= set(extras)
    assert "${EXTRAS}" in BUILD.one("RUN")


def test_what_is_copied_is_there_and_is_let_through_by_dockerignore() -> None:
    rules = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    sources = {source for words in BUILD.all("COPY") for source in words.split()[:-1]}
    assert "*" in rules
    assert sources == {rule[1:] for rule in rules if rule.startswith("!")}
    for source in sources:
        assert (ROOT / source).exists()


def test_nothing_is_kept_that_only_the_build_needs() -> None:
    for step in (*BUILD.all("RUN"), *IMAGE.all("RUN")):
        assert ("pip" in step) <= ("--no-cache-dir" in step)
        assert ("apt-get install" in step) <= ("rm -rf /var/lib/apt/lists/*" in step)
    assert "pip" not in IMAGE.one("RUN")


def test_it_runs_as_a_user_without_rights_in_the_only_place_it_may_write_to() -> None:
    assert IMAGE.one("USER") == "10001:10001"
    assert "--uid 10001 " in IMAGE.one("RUN")
    assert "--gid 10001 " in IMAGE.one("RUN")
    names = [name for name, _ in IMAGE.steps]
    assert max(place for place, name in enumerate(names) if name in ("RUN", "COPY")) < names.index("USER")
    home = IMAGE.pairs("ENV")["PEIK_HOME"]
    assert [IMAGE.one("WORKDIR"), IMAGE.one("VOLUME"), IMAGE.pairs("ENV")["HOME"]] == [home] * 3


def test_its_environment_is_of_settings_and_leaves_the_store_to_others() -> None:
    given = {name for name in IMAGE.pairs("ENV") if name.startswith("PEIK_")}
    assert given <= {setting.variable for setting in SETTINGS}
    secret = {setting.variable for setting in SETTINGS if setting.is_secret or setting.has_secret}
    assert not given & secret  # what is set here would win over ..._FILE
    assert IMAGE.one("EXPOSE") == IMAGE.pairs("ENV")["PEIK_PORT"]


def test_it_ends_in_good_order_and_says_how_it_is() -> None:
    assert IMAGE.one("STOPSIGNAL") == "SIGTERM"
    assert (IMAGE.listed("ENTRYPOINT"), IMAGE.listed("CMD")) == (["peik"], ["serve"])
    assert "'/health'" in IMAGE.one("HEALTHCHECK")
    labels = {name.removeprefix("org.opencontainers.image.") for name in IMAGE.pairs("LABEL")}
    assert {"title", "description", "licenses", "version", "revision"} == labels
