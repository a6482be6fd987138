-- For back-ends that keep their bots in such a table (docs/from-bullmq.md). A token is a secret, and sealed: of it stands here what
-- everybody may know, the number of the bot.
CREATE VIEW telegram_settings AS
SELECT
    'bot_token:' || bot_id AS setting_key, bot_id || ':…' AS bot_token, bot_id, username,
    to_timestamp(created_at / 1000.0) AS created_at
FROM bots;
