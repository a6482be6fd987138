"""How a command ends: one table of exit codes for the shell, the help and the docs."""

import enum

from peik.errors import Problem


class Exit(enum.IntEnum):
    SUCCESS = 0
    PROBLEM = 1
    USAGE = 2
    NOT_FOUND = 3
    REFUSED = 4
    UNREACHABLE = 5
    LETTER_FAILED = 6
    NOT_IN_TIME = 7
    INTERRUPTED = 130


EXITS: dict[Exit, str] = {
    Exit.SUCCESS: "success",
    Exit.PROBLEM: "a problem, told in a sentence; also an answer of no where a command asks first",
    Exit.USAGE: "wrong usage: an unknown option, a value that cannot be right",
    Exit.NOT_FOUND: "there is no such letter, job, bot, chat, key or session",
    Exit.REFUSED: "refused: a key that does not reach so far, or a conflict with how things stand",
    Exit.UNREACHABLE: "Peik, its store or its archive cannot be reached",
    Exit.LETTER_FAILED: "a letter or job that was waited for failed or was cancelled",
    Exit.NOT_IN_TIME: "a letter or job that was waited for did not end in time; it stays accepted",
    Exit.INTERRUPTED: "interrupted with Ctrl-C",
}

_OF_STATUS = {
    401: Exit.REFUSED,
    403: Exit.REFUSED,
    404: Exit.NOT_FOUND,
    409: Exit.REFUSED,
    413: Exit.REFUSED,
    422: Exit.USAGE,
    502: Exit.UNREACHABLE,
    503: Exit.UNREACHABLE,
    504: Exit.UNREACHABLE,
}


def exit_of(problem: Problem) -> Exit:
    return _OF_STATUS.get(problem.status, Exit.PROBLEM)
