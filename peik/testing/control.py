"""The tester's side over HTTP, under `/sim/`: any process in any language can drive the simulated Telegram."""

from urllib.parse import parse_qsl

import msgspec

from peik.core.problem import Problem
from peik.testing import orders
from peik.testing.answer import Answer, Pending, Refusal, failure, success
from peik.testing.telegram import Telegram
from peik.testing.wire import Request

# docs/simulator.md has one heading for each, and a test holds it to that.
CALLS: dict[tuple[str, str], type[orders.Order]] = {
    ("GET", "health"): orders.Health,
    ("GET", "sent"): orders.Sent,
    ("GET", "applied"): orders.Applied,
    ("GET", "counters"): orders.ShowCounters,
    ("GET", "message"): orders.ShowMessage,
    ("GET", "options"): orders.ShowOptions,
    ("POST", "options"): orders.ChangeOptions,
    ("POST", "reset"): orders.Reset,
    ("GET", "bots"): orders.ShowBots,
    ("POST", "bots"): orders.AddBot,
    ("POST", "revoke"): orders.Revoke,
    ("POST", "users"): orders.AddUser,
    ("POST", "chats"): orders.AddChat,
    ("POST", "topics"): orders.AddTopic,
    ("POST", "write"): orders.Write,
    ("POST", "upload"): orders.Upload,
    ("POST", "edit"): orders.Edit,
    ("POST", "press"): orders.Press,
    ("POST", "ask"): orders.Ask,
    ("POST", "update"): orders.PushUpdate,
    ("POST", "block"): orders.Block,
    ("POST", "unblock"): orders.Unblock,
    ("POST", "standing"): orders.Standing,
    ("POST", "migrate"): orders.Migrate,
    ("GET", "faults"): orders.ShowFaults,
    ("POST", "faults"): orders.AddFault,
    ("DELETE", "faults"): orders.EndFaults,
    ("POST", "outage"): orders.Outage,
    ("POST", "dark"): orders.Dark,
}


def handle(telegram: Telegram, request: Request) -> Answer | Pending:
    """Answer one control call. Mistakes are answered 4xx with what to do next."""
    name = request.path.removeprefix(b"/sim/").decode("latin-1").strip("/")
    form = CALLS.get((request.verb.decode("latin-1"), name))
    if form is None:
        known = ", ".join(f"{verb} /sim/{path}" for verb, path in CALLS)
        return failure(Refusal(404, f"There is no such control call. There are: {known}."))
    try:
        given = msgspec.json.decode(request.body) if request.body else {}
        if isinstance(given, dict) and request.query:
            given = {**dict(parse_qsl(request.query.decode())), **given}
        if form.is_open:
            given = {"given": given}
        # Not strict, so that numbers in a query string are numbers.
        result = msgspec.convert(given, form, strict=False).carry_out(telegram)
    except msgspec.MsgspecError as error:
        return failure(Refusal(422, str(error)))
    except Problem as problem:
        return failure(Refusal(problem.status, problem.detail))
    return result if isinstance(result, Pending) else success(result)
