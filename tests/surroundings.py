"""The environment that tests, checks and the demo run in: of the caller's, only what is named here. So nothing that somebody's
shell has (PYTHON…, PEIK_…, BOT_TOKEN, TZ, locale, colours, proxies …) can turn a run red or green.

The number of files that may be open is as high as it may be: many systems give a shell 1,024, and the servers of tests need more.

As a program it runs a command so: python -I tests/surroundings.py [--installing] command … The Makefile does that; `conftest.py`
does the same for whoever starts pytest directly. Nothing but the standard library here.
"""

import os
import resource
import sys
from collections.abc import Iterable, Mapping

# LD_LIBRARY_PATH: some Pythons do not start without it.
KEPT = ("PATH", "HOME", "USER", "CI", "LD_LIBRARY_PATH")
GIVEN = {"LANG": "C.UTF-8"}
# How package registries are reached, and how the name `python3` leads to a Python: only for what installs something.
INSTALLING = (
    *("PIP_", "NPM_", "npm_config_", "PYENV_", "ASDF_", "MISE_"),
    *("SSL_CERT_", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
    *("http_proxy", "https_proxy", "no_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"),
)
# What a person looks at, in the terminal that it is.
SHOWING = ("TERM", "NO_COLOR")
OUTSIDE = dict(os.environ)  # as it was before a test came to see it


def scrubbed(environment: Mapping[str, str], *, but: Iterable[str] = ()) -> dict[str, str]:
    """What is left of an environment. Names that begin like one of `but` stay as well."""
    more = tuple(but)
    return {name: value for name, value in environment.items() if name in KEPT or name.startswith(more)} | GIVEN


def raise_file_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main(words: list[str]) -> None:
    raise_file_limit()
    but = {"--installing": INSTALLING, "--showing": SHOWING}.get(words[0], ())
    command = words[1:] if but else words
    os.execvpe(command[0], command, scrubbed(os.environ, but=but))


if __name__ == "__main__":
    main(sys.argv[1:])
