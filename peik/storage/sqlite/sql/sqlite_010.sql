-- An edit that gave way to a newer one does not end before that one does: it stands apart (phase 1) with `merged_into`, and ends
-- as the newer ends, or comes back to its place. Those that had completed when they were merged stay as they are.

-- An edit that ends finds those that gave way to it.
CREATE INDEX letters_merged ON letters (merged_into) WHERE merged_into IS NOT NULL AND phase = 1;

-- What was merged does not expire by itself. Under its old name: older code finds what it looks for without it, more slowly.
DROP INDEX letters_expiry;
CREATE INDEX letters_expiry ON letters (expires_at) WHERE expires_at IS NOT NULL AND phase < 2 AND merged_into IS NULL;
