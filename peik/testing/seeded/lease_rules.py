"""The invariants of leases: who sends has the right to, one at a time, and whoever takes over knows what the last one knew."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from peik.node_ports import CHORES
from peik.testing.seeded.network import Try
from peik.testing.seeded.promises import Promise
from peik.testing.seeded.witness import Row, Witness

_HOLDER = """
SELECT s.epoch, s.node, n.ends_at FROM model_leases AS s LEFT JOIN model_nodes AS n ON n.name = s.node WHERE s.bot_id = ?
"""
_HOLDS = "SELECT chat, held_until FROM chats WHERE bot_id = ? AND held_until > ?"
_SLACK_MS = 10


def process_of(node: str) -> str:
    """Of the store's node: it has a new name whenever Peik is opened anew within one process."""
    return node.partition("/")[0]


class LeaseRules:
    """`now_ms` is the server's clock. `note` hears what is wrong."""

    def __init__(self, witness: Witness, *, now_ms: Callable[[], int], note: Callable[[str], None]) -> None:
        self._witness = witness
        self._now_ms = now_ms
        self._note = note
        self.has_jumped = False  # some wall clock was set
        self.grants = 0
        self._epochs: dict[int, int] = {}  # by bot: the last that was given
        self._holds: dict[int, dict[object, int]] = {}  # by bot: what was known when its lease was last taken
        self._flights: dict[str, list[Try]] = {}  # by promise

    def granted(self, bot_id: int, epoch: int, node: str) -> None:
        """The server gave a lease away."""
        if epoch <= self._epochs.get(bot_id, 0):
            self._note(f"the epoch of {bot_id} did not rise: {epoch}")
        self.grants += 1
        self._epochs[bot_id] = epoch
        if bot_id != CHORES:
            self._holds[bot_id] = dict(self._witness.look(_HOLDS, bot_id, self._now_ms()))

    def left(self, one: Try, promise: Promise, row: Row | None, chat: object) -> None:
        """A request leaves a node. Nothing happens in between: what the node believes now must be so at the server now."""
        if row is None or row.epoch is None:
            return  # told of already
        for bot_id, node in self._witness.look("SELECT bot_id, node FROM model_epochs WHERE epoch = ?", row.epoch):
            if (bot_id, process_of(node)) != (promise.bot_id, one.process.name):
                self._note(f"{promise.name} was sent by {one.process} under epoch {row.epoch}, which is that of {node}")
        for epoch, node, ends_at in self._witness.look(_HOLDER, promise.bot_id):
            if epoch != row.epoch or node is None or process_of(node) != one.process.name:
                self._note(f"{promise.name} was sent by {one.process} under epoch {row.epoch}, and {node} has {epoch}")
            elif ends_at <= self._now_ms():
                self._note(f"{promise.name} was sent by {one.process} {self._now_ms() - ends_at} ms after its lease")
        held_until = self._holds.get(promise.bot_id, {}).get(chat, 0)
        if held_until - _SLACK_MS > self._now_ms() and not self.has_jumped:
            self._note(f"{promise.name} was sent to {chat} in a hold that was stored before {one.process} took over")
        flights = self._flights.setdefault(promise.name, [])
        elsewhere = [other for other in flights if other.process is not one.process and other.reply is None]
        if row.uncertain_tries < len(elsewhere) and not promise.is_retried:
            self._note(f"{promise.name} was sent by {one.process} while {elsewhere[-1].process} had it in flight")
        flights.append(one)

    def lost(self, nodes: Iterable[str]) -> Iterator[str]:
        """What nobody who lives has. After two calm lease times there must be nothing."""
        living = set(nodes)
        for bot_id, node in self._witness.look("SELECT bot_id, node FROM model_leases"):
            if node is not None and process_of(node) not in living:
                yield f"the lease of {bot_id} is still that of {node}"

    def uneven(self, nodes: Iterable[str]) -> Iterator[str]:
        """Who has more than its share. It lets go when nothing of a bot is in flight any more."""
        living = set(nodes)
        leases = self._witness.look("SELECT node FROM model_leases")
        most = -(-len(leases) // max(1, len(living)))
        held = Counter(process_of(node) for (node,) in leases if node is not None)
        for name, count in held.items():
            if count > most:
                yield f"{name} has {count} of {len(leases)} leases, more than its share of {most}"
