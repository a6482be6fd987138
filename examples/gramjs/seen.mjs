// A GramJS bot that tells Peik what it has handled, so that what it gets from Peik after a restart is only what it missed.
//
//   npm install telegram
//   API_ID=… API_HASH=… BOT_TOKEN=… PEIK_URL=http://127.0.0.1:8081 PEIK_KEY=… node seen.mjs
//
// Peik polls for the same bot (`peik serve` with BOT_TOKEN set). This bot handles messages over MTProto while it runs,
// and reads the ones that nobody reported from Peik's gateway when it starts.
import { TelegramClient, utils } from "telegram";
import { StringSession } from "telegram/sessions/index.js";
import { NewMessage } from "telegram/events/index.js";

const { API_ID, API_HASH, BOT_TOKEN, PEIK_URL = "http://127.0.0.1:8081", PEIK_KEY } = process.env;
const BOT_ID = Number(BOT_TOKEN.split(":")[0]);

// ---- your bot ----

async function answer(text, chatId) {
  console.log(`${chatId}: ${text}`);
}

// ---- each message once, whether it comes over MTProto or from Peik ----

const begun = new Set();

async function handle(text, chatId, messageId) {
  const key = `${chatId}:${messageId}`;
  if (begun.has(key)) return;
  begun.add(key);
  await answer(text, chatId);
}

// ---- what was handled is reported, in batches, again and again until Peik has it ----

let handled = [];

async function report() {
  const messages = handled.slice(0, 1000);
  if (messages.length === 0) return;
  const response = await fetch(`${PEIK_URL}/v1/arrivals/seen`, {
    method: "POST",
    headers: { authorization: `Bearer ${PEIK_KEY}`, "content-type": "application/json" },
    body: JSON.stringify({ bot_id: BOT_ID, messages }),
  });
  if (!response.ok) throw new Error(`Peik said ${response.status}: ${await response.text()}`);
  handled = handled.slice(messages.length);
}

async function keepReporting() {
  for (;;) {
    await report().catch((error) => console.error("not reported yet:", error.message));
    await new Promise((wake) => setTimeout(wake, 1000));
  }
}

// ---- what was missed ----

async function recover() {
  let offset = 0;
  let count = 0;
  for (;;) {
    const answer = await fetch(`${PEIK_URL}/bot${BOT_TOKEN}/getUpdates?timeout=0&offset=${offset}`);
    const { ok, result, description } = await answer.json();
    if (!ok) throw new Error(description);
    if (result.length === 0) return count; // asking with the last offset has acknowledged the page before
    for (const update of result) {
      const { message } = update;
      if (message) await handle(message.text, message.chat.id, message.message_id);
      offset = update.update_id + 1;
      count += 1;
    }
  }
}

const client = new TelegramClient(new StringSession(""), Number(API_ID), API_HASH, { connectionRetries: 5 });
client.addEventHandler(async (event) => {
  const chatId = Number(utils.getPeerId(event.message.peerId)); // -100… for channels, as in the Bot API
  await handle(event.message.message, chatId, event.message.id);
  handled.push({ chat_id: chatId, message_id: event.message.id }); // only now: it was handled
}, new NewMessage({ incoming: true }));

await client.start({ botAuthToken: BOT_TOKEN });
console.log(`${await recover()} messages had been missed`);
keepReporting();
for (const signal of ["SIGINT", "SIGTERM"]) {
  process.once(signal, async () => {
    await report().catch((error) => console.error("not reported:", error.message));
    process.exit(0);
  });
}
