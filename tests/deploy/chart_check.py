"""The chart and the tools that are made for it: Helm itself reads and renders it, kubernetes-validate holds what comes out to the
schemas of Kubernetes, and a Peik is started with the environment that its pod would have and answers its probes.

`make deploy-check` runs this and brings both tools. No cluster is here.
"""

import asyncio
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from tests.deploy.composed import ROOT
from tests.patience import PATIENCE_S
from tests.processes.programs import Port

CHART = ROOT / "deploy" / "helm"
BESIDE = str(Path(sys.executable).parent)  # helm-binary and kubernetes-validate put their programs beside Python
STORE = "postgresql://peik:password@postgres/peik"
SQLITE: dict[str, Any] = {}
SERVER: dict[str, Any] = {"store": "server", "secrets": {"PEIK_STORE": STORE, "PEIK_ADMIN_KEY": "k" * 40}}
FULL: dict[str, Any] = {
    "store": "server",
    "replicas": 1,
    "existingSecret": "mine",
    "imagePullSecrets": [{"name": "registry"}],
    "settings": {"PEIK_IN_FLIGHT": 64, "PEIK_GATEWAY_OPEN": False},
    "networkPolicy": {
        "from": [{"namespaceSelector": {"matchLabels": {"team": "bots"}}}],
        "egress": [{"ports": [{"port": 443, "protocol": "TCP"}]}],
    },
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "bots", "operator": "Exists"}],
    "podAnnotations": {"prometheus.io/scrape": "false"},
}
KINDS = {
    "sqlite": (SQLITE, {"NetworkPolicy", "Service", "StatefulSet"}),
    "server": (SERVER, {"NetworkPolicy", "Service", "Deployment", "Secret", "PodDisruptionBudget"}),
    "full": (FULL, {"NetworkPolicy", "Service", "Deployment"}),
}
each_kind = pytest.mark.parametrize(("values", "kinds"), KINDS.values(), ids=KINDS)


def program(name: str) -> str:
    found = shutil.which(name, path=BESIDE)
    assert found, f"{name} is not here: make deploy-check installs it"
    return found


def helm(*words: str, values: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    command = [program("helm"), *words, str(CHART), "--values", "-"]
    return subprocess.run(command, input=json.dumps(values), capture_output=True, text=True, check=False)


def rendered(values: dict[str, Any]) -> str:
    said = helm("template", "shop", values=values)
    assert said.returncode == 0, said.stderr
    return said.stdout


def objects(values: dict[str, Any]) -> dict[str, Any]:
    return {one["kind"]: one for one in yaml.safe_load_all(rendered(values)) if one}


@each_kind
def test_helm_has_nothing_to_say(values: dict[str, Any], kinds: set[str]) -> None:
    said = helm("lint", "--strict", "--quiet", values=values)
    assert (said.returncode, said.stderr) == (0, ""), said.stdout
    assert objects(values).keys() == kinds


@each_kind
@pytest.mark.parametrize("version", ["1.25", "1.31", "1.37"])
def test_kubernetes_knows_every_field(values: dict[str, Any], kinds: set[str], version: str, tmp_path: Path) -> None:
    file = tmp_path / "rendered.yaml"
    file.write_text(rendered(values), encoding="utf-8")
    command = [program("kubernetes-validate"), "--strict", "-k", version, str(file)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    words = said.stdout + said.stderr
    assert said.returncode == 0, words
    assert words.count("passed for resource") == len(kinds)


def test_a_wrong_field_would_be_found(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(rendered(SQLITE).replace("readinessProbe:", "readynessProbe:"), encoding="utf-8")
    command = [program("kubernetes-validate"), "--strict", str(file)]
    assert subprocess.run(command, capture_output=True, text=True, check=False).returncode != 0


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"store": "server"}, "needs PEIK_STORE"),
        ({"store": "redis"}, "store"),
        ({"replica": 3}, "replica"),
        ({"settings": {"peik_host": "x"}}, "peik_host"),
    ],
)
def test_what_cannot_be_right_is_refused(values: dict[str, Any], words: str) -> None:
    said = helm("template", "shop", values=values)
    assert said.returncode != 0
    assert words in said.stderr


@pytest.mark.parametrize("verb", ["install", "upgrade"])
def test_the_lines_of_the_page_are_taken(verb: str) -> None:
    page = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    (line,) = re.findall(rf"^ *helm {verb} peik deploy/helm (.+)$", page, re.MULTILINE)
    words = [word for word in shlex.split(line) if word != "--reuse-values"]  # there is no release to take them from
    said = helm("template", "peik", *words, values=SQLITE)
    assert said.returncode == 0, said.stderr
    tag = line.rpartition("image.tag=")[2]
    assert re.search(rf'image: "\S+:{tag}"', said.stdout)


def test_secrets_are_in_the_secret_alone() -> None:
    made = objects(SERVER)
    assert made["Secret"]["stringData"] == SERVER["secrets"]
    pod = made["Deployment"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["envFrom"] == [{"secretRef": {"name": made["Secret"]["metadata"]["name"]}}]
    assert STORE not in json.dumps({kind: one for kind, one in made.items() if kind != "Secret"})
    (named,) = objects(FULL)["Deployment"]["spec"]["template"]["spec"]["containers"][0]["envFrom"]
    assert named == {"secretRef": {"name": "mine"}}


@each_kind
def test_what_selects_pods_selects_these(values: dict[str, Any], kinds: set[str]) -> None:
    made = objects(values)
    (main,) = (made[kind] for kind in kinds & {"StatefulSet", "Deployment"})
    labels = main["spec"]["template"]["metadata"]["labels"].items()
    chosen = [main["spec"]["selector"]["matchLabels"], made["Service"]["spec"]["selector"]]
    chosen.append(made["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"])
    if "PodDisruptionBudget" in made:
        chosen.append(made["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"])
    assert all(one.items() <= labels for one in chosen)
    assert made["Service"]["spec"]["ports"][0]["targetPort"] == "http"
    assert made["NetworkPolicy"]["spec"]["ingress"][0]["ports"] == [{"protocol": "TCP", "port": "http"}]


def test_a_peik_with_the_environment_of_the_pod_answers_its_probes_and_ends_when_told(tmp_path: Path) -> None:
    (container,) = objects(SQLITE)["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    given = {one["name"]: one["value"] for one in container["env"]}
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0o2775)  # as fsGroup leaves a volume
    port = Port()
    given |= {"PEIK_HOME": str(home), "PEIK_HOST": "127.0.0.1", "PEIK_PORT": str(port.number)}
    given |= {"PEIK_API_ROOT": "http://127.0.0.1:1"}

    async def story() -> None:
        command = [sys.executable, "-m", "peik", *container["args"]]
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)} | given
        process = await asyncio.create_subprocess_exec(*command, cwd=home, env=environment, stderr=subprocess.DEVNULL)
        try:
            async with asyncio.timeout(PATIENCE_S), aiohttp.ClientSession() as http:
                for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                    url = f"http://127.0.0.1:{port.number}{container[probe]['httpGet']['path']}"
                    while await answered(http, url) != 200:
                        assert process.returncode is None
                process.send_signal(signal.SIGTERM)
                assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    asyncio.run(story())
    assert (home / "peik.db").exists()


async def answered(http: aiohttp.ClientSession, url: str) -> int | None:
    try:
        async with http.get(url) as answer:
            return answer.status
    except aiohttp.ClientConnectionError:
        await asyncio.sleep(0.1)  # it does not listen yet
        return None
