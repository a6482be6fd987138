"""Troubles that are shown to who looks, and told to nobody: they cannot be told by way of Telegram, or end by themselves."""

from peik import events
from peik.ops.alert_rule import DAY_S, HOUR_S, Rule, as_rule

STORE_FADES_S = 60.0


def _no_way(event: events.RouteChosen, _: int) -> str:
    return (
        "there is no way to Telegram: no route answers. Letters wait, and go on by themselves. Look at the network and at "
        "the routes."
    )


def _route(event: events.RouteOpened, _: int) -> str:
    return f"route {event.route} does not answer: {event.why}. Peik asks it again and again; letters take another one."


def _store_failed(event: events.StoreFailed, count: int) -> str:
    times = "once" if count == 1 else f"{count} times"
    return (
        f"the store failed {times}, the last time for {event.what}: {event.why} Nothing that was accepted is lost; look at "
        "its disk or server."
    )


def _store_weak(event: events.StoreWeak, _: int) -> str:
    return f"a setting of the store breaks the promise that what was accepted outlives a power cut: {event.what}"


def _surprise(event: events.Surprise, count: int) -> str:
    times = "once" if count == 1 else f"{count} times"
    return f"something that Peik did not foresee happened {times} in {event.where}: {event.error}. Please report it."


def _leases_lost(event: events.LeasesLost, _: int) -> str:
    return f"this node lost {event.lost} leases to another: it did not reach the store in time. What was in flight is uncertain."


SHOWN: "tuple[Rule[events.Event], ...]" = (
    as_rule(
        Rule(
            event=events.RouteChosen,
            text=_no_way,
            repeat_s=HOUR_S,
            apart_by=(),
            is_meant=lambda event: event.route is None,
            over=events.RouteChosen,
            is_over=lambda event: isinstance(event, events.RouteChosen) and event.route is not None,
        )
    ),
    as_rule(Rule(event=events.RouteOpened, text=_route, repeat_s=HOUR_S, apart_by=("route",), over=events.RouteClosed)),
    as_rule(Rule(event=events.StoreFailed, text=_store_failed, repeat_s=HOUR_S, apart_by=(), fades_s=STORE_FADES_S)),
    as_rule(Rule(event=events.StoreWeak, text=_store_weak, repeat_s=DAY_S, apart_by=("what",))),
    as_rule(Rule(event=events.Surprise, text=_surprise, repeat_s=HOUR_S, apart_by=("where",), fades_s=HOUR_S)),
    as_rule(Rule(event=events.LeasesLost, text=_leases_lost, repeat_s=HOUR_S, apart_by=(), fades_s=HOUR_S)),
)
