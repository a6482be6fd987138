"""deploy/helm names only what there is: settings, and the user, port and folder of the image. `make deploy-check` asks Helm."""

import json
import re

import yaml

from peik.settings.table import SETTINGS
from tests.deploy.composed import ROOT
from tests.deploy.dockerfiles import stages

CHART = ROOT / "deploy" / "helm"
TEXTS = {path.relative_to(CHART).as_posix(): path.read_text(encoding="utf-8") for path in CHART.rglob("*.*")}
VALUES = yaml.safe_load(TEXTS["values.yaml"])
POD = TEXTS["templates/_helpers.tpl"]


def test_every_setting_that_it_names_is_one() -> None:
    known = {variable for setting in SETTINGS for variable in setting.variables()}
    page = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    named = {name for text in (*TEXTS.values(), page) for name in re.findall(r"PEIK_[A-Z_]+", text)}
    assert len(named) > 8
    assert named <= known


def test_no_secret_is_in_the_values() -> None:
    assert VALUES["secrets"] == {}
    assert not [name for name in VALUES["settings"] if re.search("TOKEN|KEY|PASSWORD|STORE", name)]


def test_the_pod_is_of_the_image() -> None:
    _, run = stages()
    user, group = run.one("USER").split(":")
    assert f"runAsUser: {user}" in POD
    assert f"runAsGroup: {group}" in POD
    assert f"containerPort: {run.one('EXPOSE')}" in POD
    assert f"mountPath: {run.one('VOLUME')}" in POD


def test_every_value_is_in_the_schema_and_used() -> None:
    schema = json.loads(TEXTS["values.schema.json"])["properties"]
    assert schema.keys() - {"global"} == VALUES.keys()
    used = {name for text in TEXTS.values() for name in re.findall(r"\.Values\.(\w+)", text)}
    assert used == VALUES.keys()
