"""Which pages there are, and where each is written to."""

import sys

from docs.pages.account_errors import account_errors_parts
from docs.pages.alerts import alerts_parts
from docs.pages.bench import bench_parts
from docs.pages.cli import cli_parts
from docs.pages.compatibility import compatibility_page
from docs.pages.errors import errors_parts
from docs.pages.events import events_parts
from docs.pages.growth import growth_parts
from docs.pages.imitated import imitated_parts
from docs.pages.install import write_install
from docs.pages.markdown import DOCS, REFERENCE, ROOT, page
from docs.pages.methods import methods_parts
from docs.pages.metrics import metrics_parts
from docs.pages.nodes import nodes_parts
from docs.pages.planning import planning_parts
from docs.pages.promise import promise_parts
from docs.pages.proof import proof_parts
from docs.pages.rest import rest_parts
from docs.pages.settings import settings_parts
from docs.pages.simulator import simulator_parts
from docs.pages.soak import soak_parts
from docs.pages.states import states_parts
from peik.settings.cli import env_crawler, env_example, env_production

HELP = ROOT / "peik" / "web" / "dashboard" / "help"  # a running Peik serves its runbook itself


def pages() -> dict[str, str]:
    """Every page that there should be, by file name."""
    return {
        "account-errors.md": page("What Telegram answers to accounts", *account_errors_parts()),
        "alerts.md": page("Alerts", *alerts_parts()),
        "bench.md": page("Speed in figures", *bench_parts(), *growth_parts()),
        "commands.md": page("Every command", *cli_parts()),
        "events.md": page("Events", *events_parts()),
        "errors.md": page("Telegram's errors", *errors_parts()),
        "imitated.md": page("What the simulated Telegram imitates", *imitated_parts()),
        "methods.md": page("Methods", *methods_parts()),
        "metrics.md": page("Metrics", *metrics_parts()),
        "promise.md": page("The promise in figures", *promise_parts()),
        "proof.md": page("The proof in figures", *proof_parts()),
        "nodes.md": page("Nodes in figures", *nodes_parts()),
        "soak.md": page("The soak in figures", *soak_parts()),
        "rest.md": page("The REST API", *rest_parts()),
        "simulator.md": page("Control calls of the simulator", *simulator_parts()),
        "settings.md": page("Settings", *settings_parts()),
        "states.md": page("The life of a letter", *states_parts()),
    }


def planning_page() -> str:
    return page("How much for how many", *planning_parts())


def write() -> None:
    REFERENCE.mkdir(exist_ok=True)
    for name, text in pages().items():
        (REFERENCE / name).write_text(text, encoding="utf-8")
        sys.stdout.write(f"docs/reference/{name}\n")
    seen = (DOCS / "compatibility.json").read_text(encoding="utf-8")
    (DOCS / "compatibility.md").write_text(compatibility_page(seen), encoding="utf-8")
    (DOCS / "planning.md").write_text(planning_page(), encoding="utf-8")
    (ROOT / ".env.example").write_text(env_example(), encoding="utf-8")
    (ROOT / ".env.production").write_text(env_production(), encoding="utf-8")
    (ROOT / ".env.crawler").write_text(env_crawler(), encoding="utf-8")
    (HELP / "runbook.en.md").write_text((DOCS / "runbook.md").read_text(encoding="utf-8"), encoding="utf-8")
    write_install()
    sys.stdout.write("docs/compatibility.md\ndocs/planning.md\n.env.example\n.env.production\n.env.crawler\n")
