"""The gateway's cache of files. Whose they are cannot be told, so that all of them go, and are fetched anew."""

from collections.abc import Callable

from peik.core.forgetting import Found, Gone, Person


class FileCachePart:
    """The port `Part`. It counts nothing: most of what goes is somebody else's."""

    def __init__(self, clear: Callable[[], None]) -> None:
        self._clear = clear

    async def forget(self, person: Person, *, is_dry: bool) -> Found:
        if not is_dry:
            self._clear()
        return {"file_cache": Gone()}
