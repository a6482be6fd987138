-- Who was in which group or channel, as sessions saw it from one look to another.

CREATE TABLE members (
    session_id  TEXT NOT NULL,
    agent_id    TEXT NOT NULL,
    chat_id     INTEGER NOT NULL,
    user_id     INTEGER NOT NULL,
    since_ms    INTEGER NOT NULL,
    until_ms    INTEGER,
    name        TEXT NOT NULL,
    username    TEXT,
    role        TEXT NOT NULL,
    PRIMARY KEY (session_id, chat_id, user_id, since_ms)  -- pages of a chat
) STRICT, WITHOUT ROWID;
-- Forgetting a person.
CREATE INDEX members_by_user ON members (user_id);
-- What retention lets go of.
CREATE INDEX members_by_age ON members (until_ms) WHERE until_ms IS NOT NULL;
