"""deploy/nodes is what docs/compose.md says of it. Whether containers run is not tried here: there is no engine."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from peik.core.units import parse_duration_s
from peik.settings.config import load
from peik.settings.table import SETTINGS
from peik.settings.values import StoreKind

DEPLOY = Path(__file__).parents[2] / "deploy" / "nodes"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, Any] = COMPOSE["services"]
NODES = [name for name in SERVICES if name.startswith("node-")]
PROFILES = ("postgres", "redis")


def env_example() -> dict[str, str]:
    """What env.example sets, and what it offers behind a #."""
    lines = re.findall(r"^#?([A-Z_]+)=(.*)$", (DEPLOY / "env.example").read_text(encoding="utf-8"), re.MULTILINE)
    return dict(reversed(lines))  # the first of two counts


def test_two_nodes_differ_only_in_their_names_and_volumes() -> None:
    assert len(NODES) == 2
    shared = [
        {key: value for key, value in SERVICES[name].items() if key not in ("hostname", "volumes")} for name in NODES
    ]
    assert shared[0] == shared[1]
    assert len({SERVICES[name]["volumes"][0] for name in NODES}) == 2


def test_no_secret_is_in_the_file_and_each_is_in_the_example() -> None:
    named = set(re.findall(r"\$\{([A-Z_]+)", (DEPLOY / "compose.yaml").read_text(encoding="utf-8")))
    offered = env_example()
    assert named <= set(offered)
    assert all(not offered[name] for name in named if "PASSWORD" in name or "TOKEN" in name or "KEY" in name)
    for service in SERVICES.values():
        for name, value in service.get("environment", {}).items():
            if re.search("PASSWORD|TOKEN|KEY|STORE|AUTH", name):
                assert value.startswith("${"), name


def test_every_setting_of_a_node_is_one_of_peiks() -> None:
    known = {variable for setting in SETTINGS for variable in setting.variables()}
    assert set(SERVICES["node-1"]["environment"]) <= known


def test_every_service_starts_after_what_it_needs() -> None:
    for service in SERVICES.values():
        for needed, terms in service.get("depends_on", {}).items():
            assert needed in SERVICES
            assert terms.get("required", True) is (needed not in PROFILES)  # else one profile would need the other


@pytest.mark.parametrize("profile", PROFILES)
def test_each_store_is_a_profile_of_its_own_with_a_volume(profile: str) -> None:
    service = SERVICES[profile]
    assert service["profiles"] == [profile]
    assert service["volumes"][0].split(":")[0] in COMPOSE["volumes"]
    assert "ports" not in service  # nobody outside needs it


@pytest.mark.parametrize(
    ("address", "kind"),
    [("postgresql://peik:x@postgres:5432/peik", StoreKind.POSTGRES), ("redis://:x@redis:6379/0", StoreKind.REDIS)],
)
def test_the_addresses_of_the_example_are_stores(address: str, kind: StoreKind) -> None:
    text = (DEPLOY / "env.example").read_text(encoding="utf-8")
    assert address in re.sub(r"\$\{[A-Z]+_PASSWORD\}", "x", text)
    assert load({"store": address}, environment={}, folder=DEPLOY / "nowhere").store_kind is kind


def test_the_balancer_waits_longer_than_peik_and_takes_what_peik_takes() -> None:
    text = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    defaults = {setting.name: setting.default or "" for setting in SETTINGS}
    waits = re.search(r"proxy_read_timeout (\d+s);", text)
    assert waits is not None
    assert parse_duration_s(waits[1]) > parse_duration_s(defaults["wait_max"])
    assert "non_idempotent;" not in text
    for place in SERVICES["balancer"]["volumes"]:
        assert (DEPLOY / place.split(":")[0]).is_file()
    assert set(re.findall(r"server (node-\d):8081", (DEPLOY / "nodes.conf").read_text(encoding="utf-8"))) == set(NODES)
