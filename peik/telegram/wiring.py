"""How Peik reaches Telegram, and whom it posts to: routes with their carriers, through proxies or straight."""

import ssl
import urllib.parse
from collections.abc import Callable, Mapping, Sequence

from peik.admin.oidc import OidcAsk
from peik.app.context import Context
from peik.core.address import AddressReach
from peik.core.token import Token
from peik.inbox.store import PushAnswer
from peik.settings.config import Config
from peik.settings.values import RouteAddress, RouteKind
from peik.telegram.client import BotApiCarrier, HttpDownloader, SplitCarrier
from peik.telegram.connect import Connect, Proxy, client_context, through_http, through_socks5
from peik.telegram.port import Carrier
from peik.telegram.push import HttpPoster, HttpPusher
from peik.telegram.routes import Passthrough, Route, Routes

POLLS_MAX = 20_000  # parked at once, one for each bot; what the machine gives in open files is the real bound


def routes_of(context: Context, carriers: Sequence[Carrier], *, probe_token: Callable[[], Token | None]) -> Routes:
    """A route for each address of the settings, with the carrier of the same place."""
    ways = [
        Route(
            address.name,
            carrier,
            kind=address.kind,
            clock=context.clock,
            chance=context.chance,
            events=context.events,
            probe_token=probe_token,
            trial_s=context.config.route_trial,
            is_watched=len(carriers) > 1,
        )
        for address, carrier in zip(context.config.routes, carriers, strict=True)
    ]
    return Routes(ways, clock=context.clock, events=context.events)


def passthrough_of(context: Context, routes: Routes) -> Passthrough:
    config = context.config
    return Passthrough(
        routes=routes,
        downloaders={address.name: downloader_to(address, config) for address in config.routes},
        clock=context.clock,
        timeout_s=config.timeout,
        upload_timeout_s=config.upload_timeout,
    )


def carrier_to(address: RouteAddress, config: Config) -> Carrier:
    api_root = address.api_root or config.api_root
    trust = _trust(api_root, config)
    connect = _connect(address, api_root, trust)
    return SplitCarrier(
        # One connection per call in flight: a bot's calls never queue for a connection behind another's.
        letters=BotApiCarrier(
            api_root, connections_max=max(256, config.in_flight * 4), connect=connect, ssl_context=trust
        ),
        polls=BotApiCarrier(api_root, connections_max=POLLS_MAX, connect=connect, ssl_context=trust),
    )


def poster_of(config: Config) -> HttpPoster:
    trust = None if config.ca_file is None else client_context(config.ca_file)
    return HttpPoster(may_be_private=config.hooks_allow_private, ssl_context=trust)


def pusher_of(config: Config) -> HttpPusher:
    trust = None if config.ca_file is None else client_context(config.ca_file)
    return HttpPusher(ssl_context=trust)


def asker_of(config: Config) -> OidcAsk:
    """One request to a provider of sign-ins, on a connection of its own."""
    trust = None if config.ca_file is None else client_context(config.ca_file)

    async def ask(
        verb: str, url: str, headers: Mapping[str, str], body: bytes, *, timeout_s: float, reach: AddressReach
    ) -> PushAnswer:
        pusher = HttpPusher(ssl_context=trust)
        try:
            return await pusher.ask(verb, url, headers, body, timeout_s=timeout_s, reach=reach)
        finally:
            await pusher.close()

    return ask


def downloader_to(address: RouteAddress, config: Config) -> HttpDownloader:
    api_root = address.api_root or config.api_root
    trust = _trust(api_root, config)
    return HttpDownloader(api_root, connect=_connect(address, api_root, trust), ssl_context=trust)


def _trust(api_root: str, config: Config) -> ssl.SSLContext | None:
    return client_context(config.ca_file) if api_root.startswith("https:") else None


def _connect(address: RouteAddress, api_root: str, trust: ssl.SSLContext | None) -> Connect | None:
    """The way through a proxy. None: straight to the API root."""
    if address.kind not in (RouteKind.HTTP, RouteKind.SOCKS5):
        return None
    proxy = Proxy(host=address.host, port=address.port, user=address.user, password=address.password)
    parts = urllib.parse.urlsplit(api_root)
    is_tls = parts.scheme == "https"
    through = through_http if address.kind is RouteKind.HTTP else through_socks5
    return through(
        proxy,
        host=parts.hostname or "",
        port=parts.port or (443 if is_tls else 80),
        ssl_context=trust,
    )
