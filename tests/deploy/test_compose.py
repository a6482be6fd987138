"""compose.yaml is what docs/deploy.md says of it. `make deploy-check` asks Docker Compose itself, and runs what it names."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from peik.core.units import parse_duration_s, parse_size_bytes
from peik.settings.cli import COMPOSE
from peik.settings.config import load
from peik.settings.table import SETTINGS
from peik.settings.values import StoreKind
from peik.web.server import Proxies
from tests.deploy.composed import ROOT, composed, named
from tests.deploy.dockerfiles import stages
from tests.deploy.test_env_files import CRAWLING, given

FILES = [ROOT / "compose.yaml", ROOT / "deploy" / "nodes" / "compose.yaml"]
FILE = FILES[0]
WHOLE: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
SERVICES: dict[str, Any] = WHOLE["services"]
PASSWORDS = {"TELEGRAM_REDIS_PASSWORD": "r3d", "TELEGRAM_MONGODB_PASSWORD": "m0n"}
NOWHERE = ROOT / "nowhere"


def test_without_a_profile_it_is_one_service_on_one_file() -> None:
    services = composed(FILE, {})
    assert list(services) == ["app"]
    config = load(environment=services["app"]["environment"], folder=NOWHERE)
    assert (config.store_kind, config.archive, config.port) == (StoreKind.SQLITE, None, 8000)
    assert services["app"]["ports"] == ["127.0.0.1:8000:8000"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_visitors_behind_a_proxy_are_told_apart(file: Path) -> None:
    """It comes from a bridge of Docker, whose own pools are 172.17.0.0/12 and 192.168.0.0/16."""
    services = composed(file, dict.fromkeys(named(file), "given") | {"PEIK_TRUSTED_PROXIES": ""})
    given = next(
        one["environment"] for one in services.values() if "PEIK_TRUSTED_PROXIES" in one.get("environment", {})
    )
    proxies = Proxies(load({"trusted_proxies": given["PEIK_TRUSTED_PROXIES"]}, environment={}).trusted_proxies)

    def client(peer: str) -> str:
        scope = {
            "type": "http",
            "client": (peer, 1),
            "headers": [(b"x-forwarded-for", b"203.0.113.9")],
            "scheme": "http",
        }
        proxies.believe(scope)
        return str(scope["client"][0])

    assert client("172.18.0.1") == client("192.168.32.1") == "203.0.113.9"
    assert client("198.51.100.7") == "198.51.100.7", "a stranger's word counts for nothing"


def test_the_profile_crawler_is_app_with_redis_and_mongodb() -> None:
    services = composed(FILE, PASSWORDS, "crawler")
    assert set(services) == {"app", "telegram-redis", "telegram-mongodb"}
    config = load(environment=services["app"]["environment"], folder=NOWHERE)
    assert config.store == "redis://:r3d@telegram-redis:6379/0"
    assert config.archive == "mongodb://peik:m0n@telegram-mongodb:27017/peik?authSource=admin"
    assert services["telegram-redis"]["environment"] == {"REDISCLI_AUTH": "r3d"}
    assert services["telegram-mongodb"]["environment"]["MONGO_INITDB_ROOT_PASSWORD"] == "m0n"
    for service in services.values():
        assert service["healthcheck"]["test"][0].startswith("CMD")


def test_the_crawler_s_env_file_makes_a_plain_up_bring_all_three_by_name() -> None:
    """`docker exec telegram-mongodb mongosh -u admin …`, `docker exec telegram-redis redis-cli ping`."""
    given_here = given(CRAWLING.read_text(encoding="utf-8")) | PASSWORDS
    services = composed(FILE, given_here, *given_here["COMPOSE_PROFILES"].split(","))
    assert set(services) == {"app", "telegram-redis", "telegram-mongodb"}
    for name in ("telegram-redis", "telegram-mongodb"):
        assert services[name]["container_name"] == name
    mongodb = services["telegram-mongodb"]["environment"]
    assert mongodb == {"MONGO_INITDB_ROOT_USERNAME": "admin", "MONGO_INITDB_ROOT_PASSWORD": "m0n"}
    config = load(environment=services["app"]["environment"], folder=NOWHERE)
    assert config.archive == "mongodb://admin:m0n@telegram-mongodb:27017/peik?authSource=admin"
    assert services["app"]["ports"] == ["127.0.0.1:8000:8000"]


def test_a_store_that_is_named_wins_over_a_password() -> None:
    mine = {"PEIK_STORE": "redis://mine", "PEIK_ARCHIVE": "mongodb://mine/peik"}
    given = composed(FILE, PASSWORDS | mine)["app"]["environment"]
    assert {name: given[name] for name in mine} == mine


@pytest.mark.parametrize(
    ("profile", "others"),
    [
        ("redis", {"telegram-redis"}),
        ("mongodb", {"telegram-mongodb"}),
        ("postgres", {"postgres"}),
        ("prometheus", {"prometheus"}),
        ("grafana", {"prometheus", "grafana"}),
        ("bot-api", {"bot-api"}),
    ],
)
def test_every_other_part_is_a_profile(profile: str, others: set[str]) -> None:
    assert set(composed(FILE, {}, profile)) == {"app"} | others


@pytest.mark.parametrize("file", FILES, ids=["alone", "nodes"])
def test_every_service_is_bounded_and_may_do_little(file: Any) -> None:
    variables = {"PEIK_STORE": "redis://x", "PEIK_ADMIN_KEY": "k"}
    profiles = {
        one for service in yaml.safe_load(file.read_text())["services"].values() for one in service.get("profiles", ())
    }
    services = composed(file, variables, *profiles)
    for name, service in services.items():
        assert (service["restart"], service["read_only"], service["cap_drop"]) == ("unless-stopped", True, ["ALL"]), (
            name
        )
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert set(service["logging"]["options"]) == {"max-size", "max-file"}, name
        assert service["pids_limit"] > 0, name
        assert parse_size_bytes(service["mem_limit"]) > 0, name
        assert service["healthcheck"]["test"], name
        for needed, terms in service.get("depends_on", {}).items():  # or one profile would need the other
            assert terms.get("required", True) is (not services[needed].get("profiles") or name == "grafana"), name
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), f"{name} is open to all"


def test_only_what_people_look_at_can_be_reached_from_the_machine() -> None:
    assert {name for name, service in SERVICES.items() if "ports" in service} == {"app", "prometheus", "grafana"}


def test_every_variable_is_explained_in_the_env_files() -> None:
    known = {name for name, *_ in COMPOSE} | {variable for setting in SETTINGS for variable in setting.variables()}
    assert named(FILE) <= known
    assert {name for name, *_ in COMPOSE} - {"COMPOSE_PROFILES"} <= named(FILE)
    for name, default, _ in COMPOSE:
        assert not default or f"${{{name}:-{default}}}" in FILE.read_text(encoding="utf-8"), name
        assert not name.startswith("PEIK_"), "Peik would refuse to start with it"


def test_what_is_mounted_is_there() -> None:
    for service in SERVICES.values():
        for place in service.get("volumes", ()):
            source = place.split(":")[0]
            assert (ROOT / source).exists() if source.startswith(".") else source in WHOLE["volumes"], place
    for name, secret in WHOLE["secrets"].items():
        assert secret["file"] == f"./deploy/secrets/{name}"


def test_no_secret_of_the_folder_can_be_committed() -> None:
    assert (ROOT / "deploy" / "secrets" / ".gitignore").read_text().splitlines()[1:] == ["*", "!.gitignore"]


def test_app_is_asked_as_the_image_is_and_has_time_to_let_go() -> None:
    image = stages()[-1].one("HEALTHCHECK")
    for file in FILES:
        for name, service in yaml.safe_load(file.read_text(encoding="utf-8"))["services"].items():
            if service["image"] == "peik:latest":
                assert service["healthcheck"]["test"][-1] in image, name
                grace = next(setting.default for setting in SETTINGS if setting.name == "grace")
                assert parse_duration_s(service["stop_grace_period"]) > parse_duration_s(grace or "") + 5


@pytest.mark.parametrize(("file", "name"), [(FILES[0], "telegram-redis"), (FILES[1], "redis")])
def test_redis_is_as_durable_as_peik_promises(file: Any, name: str) -> None:
    script = yaml.safe_load(file.read_text(encoding="utf-8"))["services"][name]["command"][-1]
    for option in ("--appendonly yes", "--appendfsync always", "--maxmemory-policy noeviction"):
        assert option in script
    assert "requirepass $$REDISCLI_AUTH" in script  # and never on the command line


def test_grafana_is_given_prometheus_and_the_dashboard() -> None:
    provisioning = ROOT / "deploy" / "grafana" / "provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text())["datasources"]
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "peik.yml").read_text())["providers"]
    assert (source["type"], source["url"], source["isDefault"]) == ("prometheus", "http://prometheus:9090", True)
    mounted = {place.split(":")[0]: place.split(":")[1] for place in SERVICES["grafana"]["volumes"]}
    assert mounted["./deploy/grafana/peik.json"] == provider["options"]["path"] + "/peik.json"
    assert mounted["./deploy/grafana/provisioning"] == "/etc/grafana/provisioning"
