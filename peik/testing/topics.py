"""Forum topics: made, closed, opened again, deleted."""

from peik.testing.answer import bad
from peik.testing.chats import Chat, Topic
from peik.testing.params import integer, text_of
from peik.testing.posting import writable_chat
from peik.testing.sends import Handler
from peik.testing.world import Call, World


def create(world: World, call: Call) -> object:
    chat = writable_chat(world, call.bot, call.params)
    name = text_of(call.params, "name")
    if not name:
        raise bad("topic name must be non-empty")
    if not (chat.is_forum or chat.is_lenient or chat.is_private):
        raise bad("the chat is not a forum")
    topic = add(world, chat, name)
    world.note_applied(call, chat_id=chat.id, message_id=topic.id, text=name)
    return {"message_thread_id": topic.id, "name": name, "icon_color": topic.icon_color}


def add(world: World, chat: Chat, name: str) -> Topic:
    """A new topic; its id is that of the service message that opens it."""
    topic = Topic(id=chat.next_message_id(), name=name)
    chat.topics[topic.id] = topic
    return topic


def edit(world: World, call: Call) -> object:
    chat, topic = _topic(world, call)
    topic.name = text_of(call.params, "name") or topic.name
    return _done(world, call, chat, topic)


def close(world: World, call: Call) -> object:
    chat, topic = _topic(world, call)
    if topic.is_closed:
        raise bad("TOPIC_NOT_MODIFIED")
    topic.is_closed = True
    return _done(world, call, chat, topic)


def reopen(world: World, call: Call) -> object:
    chat, topic = _topic(world, call)
    if not topic.is_closed:
        raise bad("TOPIC_NOT_MODIFIED")
    topic.is_closed = False
    return _done(world, call, chat, topic)


def delete(world: World, call: Call) -> object:
    chat, topic = _topic(world, call)
    del chat.topics[topic.id]
    return _done(world, call, chat, topic)


def _topic(world: World, call: Call) -> tuple[Chat, Topic]:
    chat = writable_chat(world, call.bot, call.params)
    topic = chat.topics.get(integer(call.params, "message_thread_id"))
    if topic is None:
        raise bad("message thread not found")
    return chat, topic


def _done(world: World, call: Call, chat: Chat, topic: Topic) -> object:
    world.note_applied(call, chat_id=chat.id, message_id=topic.id, text=topic.name)
    return True


TOPICS: dict[str, Handler] = {
    "createForumTopic": create,
    "editForumTopic": edit,
    "closeForumTopic": close,
    "reopenForumTopic": reopen,
    "deleteForumTopic": delete,
}
