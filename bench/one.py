"""One measurement in a process of its own: `python -m bench.one <name> <ground>` prints its figures as one line of JSON."""

import sys
from collections.abc import Callable

import msgspec

from bench import answer, ceilings, clients, courier, gateway, inbox, lossy, relay, server, stores, webhook
from bench.figures import Figures
from bench.ground import Ground

Measure = Callable[[Ground], Figures]

MEASURES: dict[str, Measure] = {
    one.__name__: one
    for one in (
        ceilings.fsync,
        ceilings.sqlite_commits,
        courier.accept_one_caller,
        courier.accept_many_callers,
        courier.accept_batches,
        server.serve_backlog,
        server.serve_million,
        relay.rest_single,
        ceilings.stub_ceiling,
        clients.aiohttp_loop,
        clients.carrier_loop,
        clients.aiogram_loop,
        courier.drain,
        courier.deliver_as_accepted,
        ceilings.idle_commit_and_post,
        courier.idle_latency,
        gateway.gateway,
        gateway.gateway_edits,
        relay.gateway_reads,
        answer.answers,
        webhook.bare_webhooks,
        webhook.webhook,
        inbox.recover,
        inbox.read_page,
        stores.postgres_ceiling,
        stores.postgres_accept,
        stores.redis_ceiling,
        stores.redis_accept,
        lossy.lossy,
    )
}


def main() -> None:
    name, text = sys.argv[1:]
    found = MEASURES[name](msgspec.json.decode(text, type=Ground))
    sys.stdout.write(msgspec.json.encode(found).decode() + "\n")


if __name__ == "__main__":
    main()
