-- Who was in which group or channel, as sessions saw it from one look to another.

CREATE TABLE members (
    session_id  text COLLATE "C" NOT NULL,
    agent_id    text COLLATE "C" NOT NULL,
    chat_id     bigint NOT NULL,
    user_id     bigint NOT NULL,
    since_ms    bigint NOT NULL,
    until_ms    bigint,
    name        text NOT NULL,
    username    text,
    role        text NOT NULL,
    PRIMARY KEY (session_id, chat_id, user_id, since_ms)  -- pages of a chat
);
-- Forgetting a person.
CREATE INDEX members_by_user ON members (user_id);
-- What retention lets go of.
CREATE INDEX members_by_age ON members (until_ms) WHERE until_ms IS NOT NULL;
