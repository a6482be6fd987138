"""`make audit`: are there known vulnerabilities in what Peik is installed with? Asks the public advisories through pip-audit.

pip-audit says "no known vulnerabilities" also of packages that the service knew nothing of, for instance because a registry in
between offers no advisories. Here that is no good news: what could not be asked about is said, and counts as not asked.
"""

import subprocess
import sys
from pathlib import Path

import msgspec

SOUND, VULNERABLE, UNASKED = 0, 1, 3
WITHIN_S = 600
OWN = frozenset({"peik"})  # installed from this folder, and on no list of advisories


class _Advisory(msgspec.Struct):
    id: str
    fix_versions: list[str] = []


class _Dependency(msgspec.Struct):
    name: str
    version: str = ""
    vulns: list[_Advisory] = []
    skip_reason: str | None = None


class Report(msgspec.Struct):
    """As `pip-audit --format json` writes it."""

    dependencies: list[_Dependency]


def verdict(report: Report) -> tuple[int, list[str]]:
    """The exit code, and what to say."""
    asked = [one for one in report.dependencies if one.skip_reason is None]
    unasked = [one.name for one in report.dependencies if one.skip_reason is not None and one.name not in OWN]
    lines = [
        f"{one.name} {one.version}: {vuln.id}, mended in {', '.join(vuln.fix_versions) or 'no version yet'}"
        for one in asked
        for vuln in one.vulns
    ]
    if lines:
        return VULNERABLE, [*lines, f"{len(lines)} known vulnerabilities in {len(asked)} packages."]
    if unasked:
        shown = ", ".join(unasked[:5]) + (", …" if len(unasked) > 5 else "")
        whole = len(asked) + len(unasked)
        return UNASKED, [
            f"NOT AUDITED: of {len(unasked)} of {whole} packages the advisory service said nothing ({shown}).",
            "It cannot be reached from here, or a registry in between has none. Run this where pypi.org answers.",
        ]
    return SOUND, [f"No known vulnerabilities in {len(asked)} packages."]


def main(pip_audit: str, site_packages: str) -> int:
    command = [pip_audit, "--path", site_packages, "--progress-spinner", "off", "--format", "json"]
    try:
        ended = subprocess.run(command, capture_output=True, timeout=WITHIN_S, check=False)
        report = msgspec.json.decode(ended.stdout, type=Report)
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"NOT AUDITED: pip-audit did not run ({type(error).__name__}).", file=sys.stderr)
        return UNASKED
    except msgspec.DecodeError:
        *_, last = ["nothing", *ended.stderr.decode(errors="replace").strip().splitlines()]
        print(f"NOT AUDITED: the advisory service did not answer. pip-audit said: {last}", file=sys.stderr)
        return UNASKED
    code, lines = verdict(report)
    print("\n".join(lines), file=sys.stderr if code else sys.stdout)
    return code


if __name__ == "__main__":
    import sysconfig

    sys.exit(main(str(Path(sys.argv[1])), sysconfig.get_paths()["purelib"]))
