"""Stories about archives are coroutines, as those of stores are."""

import os

from tests.store.conftest import pytest_pyfunc_call

__all__ = ["pytest_pyfunc_call"]

# They need servers, which come with `make stores`.
collect_ignore = [] if os.environ.get("PEIK_STORES") == "all" else ["servers"]
