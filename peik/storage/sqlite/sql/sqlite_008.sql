-- What a letter answers: the update of a person, or what its sender calls it. `~` before it: likely, not certain (core/trace.py).
ALTER TABLE letters ADD COLUMN trace TEXT;

-- The answers to one update among a million letters. Partial: a letter without a trace costs nothing here. Updates are answered
-- nearly in their order, so that it grows at its end, unlike one by chat would.
CREATE INDEX letters_trace ON letters (trace) WHERE trace IS NOT NULL;
