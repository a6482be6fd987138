-- The rules of methods, as `enqueue` reads them.

-- name: lock_rules
-- Two nodes that start at once write them one after the other. The lock ends with the transaction.
SELECT pg_advisory_xact_lock(hashtext('peik rules ' || current_schema()))

-- name: methods
SELECT spelling, name, kind, is_queued, is_at_most_once, target FROM methods

-- name: clear_methods
DELETE FROM methods

-- name: keep_methods
-- An array of arrays must be even, so that targets come as texts with commas.
INSERT INTO methods (spelling, name, kind, is_queued, is_at_most_once, target)
SELECT v.spelling, v.name, v.kind, v.is_queued, v.is_at_most_once, string_to_array(v.target, ',')
FROM unnest($1::text[], $2::text[], $3::text[], $4::boolean[], $5::boolean[], $6::text[])
    AS v (spelling, name, kind, is_queued, is_at_most_once, target)

-- name: verbs
SELECT place, verb, kind, is_queued, is_at_most_once FROM method_verbs ORDER BY place

-- name: clear_verbs
DELETE FROM method_verbs

-- name: keep_verbs
INSERT INTO method_verbs (place, verb, kind, is_queued, is_at_most_once)
SELECT * FROM unnest($1::integer[], $2::text[], $3::text[], $4::boolean[], $5::boolean[])
