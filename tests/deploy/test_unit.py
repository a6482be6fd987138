"""deploy/systemd/peik.service: systemd itself reads it where it is at hand, and finds little to object to."""

import configparser
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from peik.core.units import parse_duration_s
from peik.settings.table import SETTINGS
from tests.deploy.composed import ROOT

UNIT = ROOT / "deploy" / "systemd" / "peik.service"
SOCKET = UNIT.with_suffix(".socket")
EXPOSURE_MAX = 2.0  # of 10; systemd's own measure, "OK" below 2.5


def options(unit: Path = UNIT) -> dict[str, str]:
    """The last of each counts, which is enough for those that are asked for."""
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(unit.read_text(encoding="utf-8"))
    return {name: value for section in parser.sections() for name, value in parser[section].items()}


def test_it_is_left_alone_for_longer_than_peik_takes_to_end() -> None:
    grace = next(setting.default for setting in SETTINGS if setting.name == "grace")
    unit = options()
    assert parse_duration_s(unit["TimeoutStopSec"]) > parse_duration_s(grace or "") + 5
    assert (unit["KillSignal"], unit["KillMode"], unit["Restart"]) == ("SIGTERM", "mixed", "always")
    assert unit["StartLimitIntervalSec"] == "0"  # it is never given up


def test_it_says_itself_when_it_is_ready_and_alive() -> None:
    assert (options()["Type"], options()["WatchdogSec"]) == ("notify", "60s")


def test_a_reload_replaces_the_process() -> None:
    unit = options()
    assert unit["ExecReload"] == f"{unit['ExecStart']} --replace --detach"  # the command must return
    assert unit["NotifyAccess"] == "all"  # the next process is not the main one until it has said so


def test_the_socket_is_where_peik_listens_by_default() -> None:
    host, port = (next(one.default for one in SETTINGS if one.name == name) for name in ("host", "port"))
    unit = options(SOCKET)
    assert (unit["ListenStream"], unit["Accept"]) == (f"{host}:{port}", "no")
    assert SOCKET.stem == UNIT.stem  # by which systemd knows whose it is


def test_it_may_write_to_its_own_folder_and_to_nothing_else() -> None:
    unit = options()
    assert unit["User"] == unit["StateDirectory"] == "peik"
    assert unit["WorkingDirectory"] == "/var/lib/peik"
    assert (unit["ProtectSystem"], unit["ProtectHome"], unit["NoNewPrivileges"]) == ("strict", "yes", "yes")
    assert "ReadWritePaths" not in unit
    assert unit["CapabilityBoundingSet"] == ""
    known = {variable for setting in SETTINGS for variable in setting.variables()}
    assert set(re.findall(r"PEIK_[A-Z_]+", UNIT.read_text(encoding="utf-8"))) <= known


def test_the_line_that_restores_is_run_as_the_unit_is() -> None:
    page = (ROOT / "docs" / "backups.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^sudo systemd-run (.+)$", page, re.MULTILINE)
    given = dict(re.findall(r"-p (\w+)=(\S+)", line))
    unit = options()
    home = given.pop("Environment")
    assert home in unit["Environment"].split()
    assert {"User", "EnvironmentFile", "WorkingDirectory"} <= set(given)
    assert given == {name: unit[name] for name in given}
    assert line.endswith(f" {unit['ExecStart'].split()[0]} backup restore FILE")
    assert "sudo systemctl stop peik.socket peik\n" in page  # the socket alone would start it again


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze (Debian: systemd)")
def test_systemd_reads_it_and_finds_it_shut_well(tmp_path: Path) -> None:
    shutil.copy(SOCKET, tmp_path)
    here = tmp_path / "peik.service"
    here.write_text(UNIT.read_text(encoding="utf-8").replace("/opt/peik/bin/peik", "/bin/true"), encoding="utf-8")
    checked = subprocess.run(
        ["systemd-analyze", "verify", here, tmp_path / SOCKET.name], capture_output=True, text=True, check=False
    )
    assert not re.search("peik.(service|socket)", checked.stderr), (
        checked.stderr
    )  # other units of this machine are not ours
    asked = ["systemd-analyze", "security", "--offline=yes", "--no-pager", here]
    judged = subprocess.run(asked, capture_output=True, text=True, check=False)
    exposure = re.search(r"Overall exposure level for peik.service: ([\d.]+)", judged.stdout)
    assert exposure is not None, judged.stderr
    assert float(exposure[1]) <= EXPOSURE_MAX
