"""The mistakes of callers, as exceptions with a stable code. core may raise these; `peik.errors` draws the whole tree."""


class Problem(Exception):
    """Something a caller can mend. `code` is stable and for programs; `detail` says what to do next, for people."""

    status = 400

    def __init__(self, *, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


class BadInput(Problem):
    """The request itself cannot be right, whatever the state of Peik."""

    status = 422
