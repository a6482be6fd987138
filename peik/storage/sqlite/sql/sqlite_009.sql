-- A lane's arrivals, stretch by stretch of 4,096 numbers of its bot. What comes goes into the last stretch, a few pages that the
-- next update touches again; ordered by lane alone, each update of a store that is not small had a page of its own to write.
-- Who looks through a lane asks once for each stretch (peik/storage/sqlite/inbox_rows.py). Under its old name: older code finds what it
-- looks for by it, more slowly.
DROP INDEX arrivals_lane;
CREATE INDEX arrivals_lane ON arrivals (bot_id, number >> 12, lane);
