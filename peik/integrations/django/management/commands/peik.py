"""The command `peik` of a Django project: Peik's own command line, with the address and the key of the setting PEIK."""

import os
import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand


class Command(BaseCommand):  # type: ignore[misc, unused-ignore]
    help = "Peik's command line, asking the Peik of your settings: manage.py peik stats, manage.py peik help."

    def run_from_argv(self, argv: list[str]) -> None:
        self.handle(*argv[2:])

    def handle(self, *arguments: str, **_: Any) -> None:
        from peik.app.cli import main

        for name in ("URL", "KEY"):
            if value := getattr(settings, "PEIK", {}).get(name):
                os.environ.setdefault(f"PEIK_{name}", value)
        sys.argv = ["peik", *arguments]
        main()
