"""Stories about stores are coroutines here too."""

from tests.storage.conftest import pytest_pyfunc_call

__all__ = ["pytest_pyfunc_call"]
