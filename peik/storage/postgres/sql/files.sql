-- Files of letters, in parts.

-- name: keep_part
-- Kept again if the one who kept it never heard the answer.
INSERT INTO blobs (blob, place, part) VALUES (:blob, :place, :part)
ON CONFLICT (blob, place) DO UPDATE SET part = excluded.part

-- name: part
SELECT part FROM blobs WHERE blob = :blob AND place = :place

-- name: drop_files
DELETE FROM blobs WHERE blob = ANY (:blobs::text[])

-- name: kept_files
SELECT blob, floor(extract(epoch FROM min(kept_at)) * 1000)::bigint FROM blobs GROUP BY blob
