-- Known chats. Whatever writes does so under the lock of the bot's place (`lock_places`), and so reads the truth.
-- {contact} stands for the columns of a chat, {where} for the conditions of a filter: every value is bound, none is pasted in.

-- name: known_bots
-- FOR KEY SHARE: none is removed before this commit, so that no chats are left behind. Before its place, as a removal does it.
SELECT b.bot_id FROM bots AS b WHERE b.bot_id = ANY (:bots::bigint[]) ORDER BY b.bot_id FOR KEY SHARE

-- name: keep_places
INSERT INTO contact_places (bot_id) SELECT v.bot_id FROM unnest(:bots::bigint[]) AS v (bot_id) ORDER BY v.bot_id
ON CONFLICT DO NOTHING

-- name: lock_places
SELECT p.bot_id FROM contact_places AS p WHERE p.bot_id = ANY (:bots::bigint[]) ORDER BY p.bot_id FOR UPDATE

-- name: place
SELECT p.place FROM contact_places AS p WHERE p.bot_id = :bot

-- name: move_place
UPDATE contact_places SET place = :place WHERE bot_id = :bot

-- name: those
SELECT {contact} FROM contacts AS c WHERE c.bot_id = :bot AND c.chat_id = ANY (:chats::bigint[])

-- name: save
INSERT INTO contacts
    (bot_id, chat_id, type, name, username, language, first_seen, last_seen, is_gone, campaign, words)
SELECT * FROM unnest(
    $1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::bigint[], $9::boolean[],
    $10::text[], $11::text[]
)
ON CONFLICT (bot_id, chat_id) DO UPDATE SET
    type = excluded.type,
    name = excluded.name,
    username = excluded.username,
    language = excluded.language,
    last_seen = excluded.last_seen,
    is_gone = excluded.is_gone,
    words = excluded.words

-- name: with_types
c.type = ANY (:types::text[])

-- name: with_languages
EXISTS (
    SELECT 1 FROM unnest(:languages::text[]) AS l (value)
    WHERE lower(coalesce(c.language, '')) = l.value OR starts_with(lower(c.language), l.value || '-')
)

-- name: with_is_gone
c.is_gone = :is_gone

-- name: with_text
strpos(c.words, :text) > 0

-- name: with_campaign
coalesce(c.campaign, '') = :campaign

-- name: page
-- Along the primary key: the same at any depth, unless a filter finds few.
SELECT {contact} FROM contacts AS c
WHERE c.bot_id = :bot AND {where}
ORDER BY c.chat_id LIMIT :limit

-- name: edge
-- How far a page looks: the chat so many places behind where it begins. In the index alone.
SELECT c.last_seen, c.chat_id FROM contacts AS c
WHERE c.bot_id = :bot AND {within}
ORDER BY c.last_seen DESC, c.chat_id DESC LIMIT 1 OFFSET :behind

-- name: newest
SELECT {contact} FROM contacts AS c
WHERE c.bot_id = :bot AND {where}
ORDER BY c.last_seen DESC, c.chat_id DESC LIMIT :limit

-- name: count_tallied
-- Kinds of chats are counted as they come and change.
SELECT coalesce(sum(c.contacts), 0) FROM contact_tallies AS c WHERE c.bot_id = :bot AND {where}

-- name: count
SELECT count(*) FROM contacts AS c WHERE c.bot_id = :bot AND {where}

-- name: campaigns_edge
-- When the chat first wrote that is so many places behind.
SELECT c.first_seen FROM contacts AS c WHERE c.bot_id = :bot AND c.first_seen >= :since
ORDER BY c.first_seen LIMIT 1 OFFSET :step

-- name: count_campaigns
SELECT coalesce(c.campaign, ''), count(*) FROM contacts AS c
WHERE c.bot_id = :bot AND c.first_seen >= :since AND (:until::bigint IS NULL OR c.first_seen < :until) GROUP BY 1

-- name: forget_contacts
DELETE FROM contacts WHERE bot_id = :bot

-- name: forget_tallies
DELETE FROM contact_tallies WHERE bot_id = :bot

-- name: forget_place
DELETE FROM contact_places WHERE bot_id = :bot
