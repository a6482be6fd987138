"""Every setting."""

from docs.pages.markdown import code, table
from peik.settings.table import REDIS, SETTINGS, Setting, SettingGroup


def settings_parts() -> list[str]:
    ordered = sorted(SETTINGS, key=lambda one: list(SettingGroup).index(one.group))
    rows = [(code(one.variable), _default(one), one.help, ", ".join(map(code, one.variables()[1:]))) for one in ordered]
    return [
        (
            "Settings come from the environment, from `.env`, from `peik.toml` (names in lower case, without `PEIK_`) and from "
            "flags; a flag wins over the environment, that over `.env`, that over `peik.toml`. Durations are written `500ms`, "
            "`10s`, `5m`, `24h`, `7d`, sizes `512k`, `100M`, `2G`. A secret can also be read from a file, whose path is in the "
            "variable that ends in `_FILE`. A `PEIK_` variable that is not here is refused, so that a misspelling is noticed."
        ),
        table(("variable", "default", "what it is", "also read from"), rows),
        (
            "Every setting is also a flag of `peik serve`, such as `--keep-dead 14d`; a secret has a flag for the file that it "
            "is in, such as `--admin-key-file`, since others can read a command line. `peik config show` tells what is in "
            "force and where each value comes from, `peik config example` prints an `.env` with all of them."
        ),
        "## Redis by its own names",
        "As other programs name it. PEIK_STORE goes before.",
        table(("variable", "what it is"), [(code(name), words) for name, words in REDIS]),
    ]


def _default(setting: Setting) -> str:
    return "none" if setting.default is None else code(setting.default)
