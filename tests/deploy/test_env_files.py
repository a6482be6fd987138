""".env.example and .env.production: made from the table, and read alike by Peik, Docker Compose and systemd."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from peik.core.units import parse_duration_s
from peik.settings.cli import CHOSEN, CRAWLER, MUST, app, env_crawler, env_production
from peik.settings.config import find, load, read
from peik.settings.table import SETTINGS
from tests.deploy.composed import ROOT

PRODUCTION = ROOT / ".env.production"
CRAWLING = ROOT / ".env.crawler"


def given(text: str) -> dict[str, str]:
    """What a file sets, not what it offers behind a #."""
    return dict(line.split("=", 1) for line in text.splitlines() if line and not line.startswith("#"))


@pytest.mark.parametrize(("file", "flag"), [(PRODUCTION, "--production"), (CRAWLING, "--crawler")])
def test_the_file_is_what_the_command_prints_now(file: Path, flag: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert text == {PRODUCTION: env_production, CRAWLING: env_crawler}[file](), "run: .venv/bin/python docs/generate.py"
    assert CliRunner().invoke(app, ["example", flag]).output == text


@pytest.mark.parametrize("name", [".env.example", ".env.production", ".env.crawler"])
def test_every_setting_is_in_it_once(name: str) -> None:
    """By its own name; the crawler has two by the names that its users know."""
    lines = re.findall(r"^#?([A-Z_]+)=", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
    assert len(lines) == len(set(lines))
    for setting in SETTINGS:
        assert setting.variable in lines or set(setting.also) & {one for one, *_ in CRAWLER} & set(lines), setting.name
    assert {one for one in lines if one.startswith("PEIK_")} <= {setting.variable for setting in SETTINGS}


def test_the_crawler_s_file_loads_as_it_is() -> None:
    """Nothing that is not filled in yet counts, and nothing in it is a stranger to Peik."""
    text = CRAWLING.read_text(encoding="utf-8")
    assert set(given(text)) == {*(name for name, *_ in CRAWLER), "PEIK_ADMIN_KEY", "PEIK_SECRET_KEY"}
    config = load(
        environment=given(text) | {"TELEGRAM_API_ID": "7", "TELEGRAM_API_HASH": "ab"}, folder=ROOT / "nowhere"
    )
    assert (config.telegram_api_id, config.telegram_api_hash) == (7, "ab")
    assert config.admin_key is None


def test_production_loads_as_it_is_and_sets_what_it_says(tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes(PRODUCTION.read_bytes())
    found = find(environment={}, folder=tmp_path)
    config = read(found)
    assert {name for name, one in found.items() if one.source == ".env"} == set(CHOSEN)
    assert (config.backup_every, config.gateway_open, config.log_format) == (parse_duration_s("24h"), False, "json")
    assert set(given(PRODUCTION.read_text(encoding="utf-8"))) == {f"PEIK_{name.upper()}" for name in (*MUST, *CHOSEN)}


def test_production_filled_in_is_what_was_filled_in(tmp_path: Path) -> None:
    text = PRODUCTION.read_text(encoding="utf-8")
    for name in MUST:
        text = text.replace(f"PEIK_{name.upper()}=\n", f"PEIK_{name.upper()}=mine\n")
    (tmp_path / ".env").write_text(text, encoding="utf-8")
    found = find(environment={}, folder=tmp_path)
    config = read(found)
    assert {name for name, one in found.items() if one.source == ".env"} == set(CHOSEN) | set(MUST)
    assert (config.admin_key, config.admin_chats) == ("mine", ("mine",))


def test_no_choice_is_the_default_and_every_name_is_a_setting() -> None:
    defaults = {setting.name: setting.default for setting in SETTINGS}
    assert set(MUST) <= set(defaults)
    assert not set(MUST) & set(CHOSEN)
    assert all(defaults[name] != value for name, (value, _) in CHOSEN.items())


def test_what_it_sets_is_plain_for_all_who_read_it() -> None:
    """systemd knows no ${…}, and Docker Compose and dotenv disagree about quotes and remarks behind a value."""
    for name, value in given(env_production()).items():
        assert re.fullmatch(r"[A-Za-z0-9./:_-]*", value), name
