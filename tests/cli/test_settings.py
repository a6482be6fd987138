"""Settings: where each value comes from, what is refused, and what is made from the table."""

from pathlib import Path

import pytest

from peik.errors import StartError
from peik.settings.cli import env_example
from peik.settings.config import find, load, read
from peik.settings.table import REDIS, SETTINGS, SettingGroup
from tests.cli.shell import Shell

ROOT = Path(__file__).parents[2]


def test_every_value_tells_where_it_comes_from(tmp_path: Path) -> None:
    (tmp_path / "peik.toml").write_text('port = 1\nhost = "h1"\nattempts = 3\nlog_level = "error"\n', encoding="utf-8")
    (tmp_path / ".env").write_text("PEIK_PORT=2\nPEIK_HOST=h2\nQUEUE_BACKOFF_DELAY=500\n", encoding="utf-8")
    secret = tmp_path / "key"
    secret.write_text("s3cret\n", encoding="utf-8")
    environment = {
        "PEIK_PORT": "3",
        "PEIK_ADMIN_KEY_FILE": str(secret),
        "QUEUE_MAX_CONCURRENT_JOBS": "5",
        "BOT_TOKEN": "1:a",
    }
    given = find({"port": "4"}, environment=environment, folder=tmp_path)
    config, sources = read(given), {name: one.source for name, one in given.items()}
    found = [(config.port, sources["port"]), (config.host, sources["host"]), (config.attempts, sources["attempts"])]
    assert found == [(4, "flag"), ("h2", ".env"), (3, "peik.toml")]
    assert (config.in_flight, sources["in_flight"]) == (5, "environment QUEUE_MAX_CONCURRENT_JOBS")
    assert (config.backoff_ms, sources["backoff_ms"]) == (500, ".env")
    assert (config.admin_key, sources["admin_key"]) == ("s3cret", str(secret))
    assert (config.bot_tokens, sources["bot_tokens"]) == ("1:a", "environment BOT_TOKEN")
    assert (config.timeout, sources["timeout"]) == (75, "default")
    assert set(sources) == {setting.name for setting in SETTINGS}


@pytest.mark.parametrize(
    ("where", "text", "words"),
    [
        (".env", "PEIK_PROT=1", "PEIK_PROT is not a setting of Peik. Did you mean PEIK_PORT?"),
        ("peik.toml", "prot = 1", r"prot \(in peik.toml\) is not a setting of Peik. Did you mean port"),
        ("peik.toml", "[serve]\nport = 1", r"serve \(in peik.toml\) is not a setting"),
        (".env", "PEIK_STORE=mysql://me:hidden@host/db", "PEIK_STORE: a store is sqlite:///peik.db .* or redis://"),
        (".env", "PEIK_STORE=sqlite:peik.db", "PEIK_STORE: a store is"),
        (".env", "PEIK_STORE=sqlite://peik.db", "three slashes"),
        (".env", "PEIK_LEASE=0.2s", "a lease lasts between 1s and 10m"),
        (".env", "PEIK_KEY_FILE=nowhere", "PEIK_KEY_FILE=nowhere cannot be read"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_way_out(where: str, text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / where).write_text(text, encoding="utf-8")
    with pytest.raises(StartError, match=words):
        load(environment={}, folder=tmp_path)


@pytest.mark.parametrize(
    ("environment", "store"),
    [
        ({"REDIS_HOST": "cache"}, "redis://cache:6379/0"),
        ({"REDIS_HOST": "::1", "REDIS_PORT": "7000", "REDIS_DB": "2"}, "redis://[::1]:7000/2"),
        ({"REDIS_HOST": "cache", "REDIS_PASSWORD": "p@ss/word"}, "redis://:p%40ss%2Fword@cache:6379/0"),
    ],
)
def test_redis_by_its_own_names_is_the_store_unless_one_is_named(
    environment: dict[str, str], store: str, tmp_path: Path
) -> None:
    given = find(environment=environment, folder=tmp_path)
    config = read(given)
    assert (config.store, given["store"].source) == (store, "environment REDIS_HOST")
    assert config.is_store_by_redis_host
    assert not load(environment=environment | {"PEIK_STORE": store}, folder=tmp_path).is_store_by_redis_host
    assert "p@ss" not in config.store_shown
    assert "p%40ss" not in config.store_shown
    assert load(environment=environment | {"PEIK_STORE": "sqlite:///a.db"}, folder=tmp_path).store == "sqlite:///a.db"


def test_names_of_other_systems_do_no_harm(tmp_path: Path) -> None:
    reserved = {name: "1" for name, _ in REDIS}
    assert load(environment=reserved | {"PEIK_STORE": "sqlite:///a.db"}, folder=tmp_path).store == "sqlite:///a.db"


def test_config_show_masks_secrets_and_config_example_is_the_file_in_the_repository(tmp_path: Path) -> None:
    shell = Shell(tmp_path, PEIK_ADMIN_KEY="s3cret", PEIK_ROUTES="socks5://me:pass@host:1", PEIK_KEEP_DEAD="14d")
    shown = {row["variable"]: row for row in shell.asked("config", "show")["settings"]}
    assert [shown[name]["value"] for name in ("PEIK_ADMIN_KEY", "PEIK_ROUTES", "PEIK_KEEP_DEAD")] == [
        "***",
        "***",
        "14d",
    ]
    assert shown["PEIK_KEEP_DEAD"]["source"] == "environment PEIK_KEEP_DEAD"
    assert (shown["PEIK_BOT_TOKENS"]["value"], shown["PEIK_BOT_TOKENS"]["source"]) == (None, "default")
    table = shell.peik("config", "show")
    assert "s3cret" not in table.out
    assert "pass" not in table.out
    assert len(table.out.splitlines()) == len(SETTINGS) + 2
    refused = shell.peik("config", "show", "--json", PEIK_PROT="1")
    assert (refused.code, refused.problem["code"]) == (1, "cannot_start")
    assert shell.peik("config", "example").out == (ROOT / ".env.example").read_text(encoding="utf-8")


def test_the_example_is_an_env_file_that_changes_nothing(tmp_path: Path) -> None:
    text = (ROOT / ".env.example").read_text(encoding="utf-8")
    without_marks = "\n".join(line.removeprefix("#") for line in text.splitlines() if line.startswith("#PEIK_"))
    (tmp_path / ".env").write_text(without_marks, encoding="utf-8")
    assert load(environment={}, folder=tmp_path) == load(environment={}, folder=tmp_path / "nowhere")
    assert without_marks.count("\n") + 1 == len(SETTINGS)


def test_every_setting_is_a_flag_of_serve_secrets_by_file_only(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shown = shell.peik("serve", "--help", COLUMNS="200").out
    for setting in SETTINGS:
        flag = f" --{setting.name.replace('_', '-')}"
        is_there = setting.group is not SettingGroup.CLIENT
        assert (f"{flag}-file " in shown) is (is_there and setting.is_secret), flag
        assert (f"{flag} " in shown) is (is_there and not setting.is_secret), flag
    ran = shell.peik("serve", "--port", "many", PEIK_PORT="0")  # the flag wins, and is wrong
    assert (ran.code, ran.err) == (1, "peik: PEIK_PORT: 'many' is not a whole number.\n")


def test_the_example_is_what_the_generator_makes_now() -> None:
    assert (ROOT / ".env.example").read_text(encoding="utf-8") == env_example()
