"""Stories about archives are coroutines, as those of stores are."""

from tests.archive.places import HAS_SERVERS
from tests.storage.conftest import pytest_pyfunc_call

__all__ = ["pytest_pyfunc_call"]

collect_ignore = [] if HAS_SERVERS else ["servers"]
