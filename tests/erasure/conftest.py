"""Stories about archives are coroutines, as those of stores are."""

from tests.storage.conftest import pytest_pyfunc_call

__all__ = ["pytest_pyfunc_call"]
