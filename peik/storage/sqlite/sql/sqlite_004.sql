-- Letters that still have to be sent and may have arrived: few among many. A new owner counts their last tries in its pace.
CREATE INDEX letters_doubted ON letters (bot_id) WHERE uncertain_tries > 0 AND phase < 2;
