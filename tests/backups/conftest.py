"""Stories about stores are coroutines here too."""

from tests.store.conftest import pytest_pyfunc_call

__all__ = ["pytest_pyfunc_call"]
