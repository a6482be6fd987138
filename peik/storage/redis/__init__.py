"""The store on Redis or Valkey. What stands where on the server, and why; the scripts are in lua/, one file per idea.

Every key begins with the prefix and a hash tag (`peik:{peik}:`), so that a cluster keeps them together and other programs
are left alone. Everything that writes is an operation of one script (lua/*.lua put together by client.py). Each operation
is checked before its first write, and all that wait at a moment go in one call: the server runs a script alone and writes
it to its log as one transaction, so that a commit is there as a whole or not at all.

Memory is what this store costs, so a waiting letter is two entries and a bit:

    letters             hash    id -> its record: what the caller said, packed once and never written again
    lane:BOT:CHAT|THR   zset    id by rank * 2^50 + number: the order of a lane over all ranks; a small one is a few bytes each
    lanes:BOT:RANK      zset    lanes that have letters of this rank, by name: the sender's cursor walks here
    state               hash    id -> what became of it; absent while a letter waits in its lane untried

and what only some letters have:

    marks:BOT           hash    id -> epoch:instant of what is in flight; only its own epoch settles it
    backoff:BOT, due, expiry, done, dead      zsets of ids by time
    targets:BOT, awaits, blobs                hashes: edits by what they replace, who refers to whom, files still needed
    recent:BOT          zset    tries of the last two minutes, for the pace of the next owner
    idempotency         hash    BOT:key -> digest, id, until when; with its zset by age
    tally:BOT           hash    the last number, and how many stand where
    blocks              hash    id / 1000 -> how many of these are still here: people's lists walk ids by it, without an index
    log, log_age                the message log
    hooks, hooks:ENDPOINT, endpoints, hooks_due, hook_bodies    who still has to be told how a letter ended

Beside letters: bots, chats:BOT, alias:BOT with alias_of:BOT:CHAT (who leads there), chat_index:BOT, holds, files:BOT, keys,
keys_live, keys_used, secrets.

The inbox:

    arrivals            hash    id -> a line (number, epoch, received …) and the update as it came
    order:BOT:WHOSE     zset    id by number; WHOSE is 0 for all, or the consumer that a replay is for
    arrivals:BOT:LANE   zset    id by id: a lane by itself
    updates:BOT:EPOCH   hash    Telegram's id -> ours: the second copy is known by it; gone with its epoch
    inbox:BOT           hash    where we stand at Telegram
    consumers, consumers:BOT, progress, watermarks:ID           who reads, and how far each is
    stories:ID, put_off:ID, given_up:ID                         arrivals that failed at least once, by consumer
    handled:BOT, outages                                        what MTProto clients saw; when we were away

Nodes:

    alive               zset    node by when its time runs out, by the server's clock
    nodes, locks        hashes  node -> what it says of itself; name -> until when, and whose
    leases              hash    bot -> epoch and node: who may act for it, as long as that node is alive
    epoch               text    the last one that was given; they rise, and none is given twice

A mark takes only under its bot's lease while that lasts, and only its own epoch settles it. After a commit that changed what
others should know, its node says so on the channel `news`.

    parts:BLOB, parts_kept      hash and zset: files of letters in parts, and when each came

Documents and known chats are described in documents.py, jobs in jobs.py.

Chats are texts here: n123 is a number, t@name a text. Times are milliseconds, and Peik's, not the server's, but for nodes,
leases, locks and files: so stories in other times than now are told on a real server.
"""

from peik.storage.redis.store import RedisStore

__all__ = ["RedisStore"]
