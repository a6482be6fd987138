-- Known chats (peik/core/documents.py says what they are). {rows} stands for as many tuples of values as there are, {contact} for
-- the columns of a chat, {where} for the conditions of a filter: every value is bound, none is pasted in.

-- name: place
SELECT place FROM contact_places WHERE bot_id = :bot

-- name: move_place
INSERT INTO contact_places (bot_id, place) VALUES (:bot, :place)
ON CONFLICT (bot_id) DO UPDATE SET place = excluded.place

-- name: those
SELECT {contact} FROM contacts AS c WHERE c.bot_id = :bot AND c.chat_id IN (SELECT value FROM json_each(:chats))

-- name: save
INSERT INTO contacts
    (bot_id, chat_id, type, name, username, language, first_seen, last_seen, is_gone, campaign, words)
VALUES {rows}
ON CONFLICT (bot_id, chat_id) DO UPDATE SET
    type = excluded.type,
    name = excluded.name,
    username = excluded.username,
    language = excluded.language,
    last_seen = excluded.last_seen,
    is_gone = excluded.is_gone,
    words = excluded.words

-- name: with_types
c.type IN (SELECT value FROM json_each(:types))

-- name: with_languages
EXISTS (
    SELECT 1 FROM json_each(:languages) AS l
    WHERE lower(coalesce(c.language, '')) = l.value OR substr(lower(c.language), 1, length(l.value) + 1) = l.value || '-'
)

-- name: with_is_gone
c.is_gone = :is_gone

-- name: with_text
instr(c.words, :text) > 0

-- name: with_campaign
coalesce(c.campaign, '') = :campaign

-- name: page
-- Along the primary key: the same at any depth, unless a filter finds few.
SELECT {contact} FROM contacts AS c
WHERE c.bot_id = :bot AND {where}
ORDER BY c.chat_id LIMIT :limit

-- name: edge
-- How far a page looks: the chat so many places behind where it begins. In the index alone.
SELECT c.last_seen, c.chat_id FROM contacts AS c INDEXED BY contacts_seen
WHERE c.bot_id = :bot AND {within}
ORDER BY c.last_seen DESC, c.chat_id DESC LIMIT 1 OFFSET :behind

-- name: newest
SELECT {contact} FROM contacts AS c INDEXED BY contacts_seen
WHERE c.bot_id = :bot AND {where}
ORDER BY c.last_seen DESC, c.chat_id DESC LIMIT :limit

-- name: count_tallied
-- Kinds of chats are counted as they come and change.
SELECT coalesce(sum(c.contacts), 0) FROM contact_tallies AS c WHERE c.bot_id = :bot AND {where}

-- name: count
SELECT count(*) FROM contacts AS c WHERE c.bot_id = :bot AND {where}

-- name: campaigns_edge
-- When the chat first wrote that is so many places behind.
SELECT c.first_seen FROM contacts AS c INDEXED BY contacts_first
WHERE c.bot_id = :bot AND c.first_seen >= :since
ORDER BY c.first_seen LIMIT 1 OFFSET :step

-- name: count_campaigns
SELECT coalesce(c.campaign, ''), count(*) FROM contacts AS c INDEXED BY contacts_first
WHERE c.bot_id = :bot AND c.first_seen >= :since AND c.first_seen < coalesce(:until, 9223372036854775807)
GROUP BY 1

-- name: forget_contacts
DELETE FROM contacts WHERE bot_id = :bot

-- name: forget_tallies
DELETE FROM contact_tallies WHERE bot_id = :bot

-- name: forget_place
DELETE FROM contact_places WHERE bot_id = :bot
