-- Ways for people to letters among a million, by where they stand; each is walked from the newest down, with the id at its end.
-- Measured with bench/board.py. There is none by chat or user on purpose: every letter would be put somewhere else in it, which
-- costs as much again as accepting it, and lists may look at a bounded number of letters instead.

-- Letters that have not ended, bot by bot: the few that are stuck behind a million that were delivered, and the oldest of each
-- bot. Partial, as the lanes' own index is: it shrinks as letters end.
CREATE INDEX letters_open ON letters (bot_id, phase, id) WHERE phase < 2;

-- Letters that have ended, each end by itself: they end nearly in their order, so that it grows at its end.
CREATE INDEX letters_ended ON letters (phase, id) WHERE phase >= 2;
