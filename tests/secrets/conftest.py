"""Stories about real nodes are coroutines, as those about stores."""

from tests.storage.conftest import pytest_pyfunc_call

__all__ = ["pytest_pyfunc_call"]
