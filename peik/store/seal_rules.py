"""How secrets of records are sealed and opened on their way into a store and out of it, the same in all three."""

import msgspec

from peik.inbox_ports import Consumer
from peik.seals import Seals, place_of_consumer


def sealed(consumer: Consumer, seals: Seals) -> Consumer:
    if consumer.secret is None:
        return consumer
    secret = seals.seal(consumer.secret, place=place_of_consumer(consumer.bot_id, consumer.name))
    return msgspec.structs.replace(consumer, secret=secret)


def opened(consumer: Consumer, seals: Seals) -> Consumer:
    if consumer.secret is None:
        return consumer
    secret = seals.open(consumer.secret, place=place_of_consumer(consumer.bot_id, consumer.name))
    return msgspec.structs.replace(consumer, secret=secret)
