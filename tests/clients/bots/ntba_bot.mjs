// The test bot as node-telegram-bot-api's README teaches it; only the API root is ours.
import { createHash } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

import { Bot, InlineKeyboardBuilder, InputFile, MediaGroupBuilder } from "node-telegram-bot-api";
import { run, startWebhook } from "node-telegram-bot-api/node";

const { API_ROOT, BOT_TOKEN, WEBHOOK_PORT, WEBHOOK_SECRET } = process.env;

function tell(facts) {
  process.stdout.write(`${JSON.stringify(facts)}\n`);
}

// The library repeats by itself what got no answer, by default only twice within a second. We listen in for the tests.
async function listening(url, init) {
  const unanswered = url.split("/").at(-1);
  try {
    const response = await fetch(url, init);
    if (response.status >= 500 && unanswered !== "getUpdates") tell({ unanswered, why: String(response.status) });
    return response;
  } catch (error) {
    if (unanswered !== "getUpdates") tell({ unanswered, why: String(error.cause ?? error) });
    throw error;
  }
}

const bot = new Bot(BOT_TOKEN, { apiRoot: API_ROOT, maxRetries: 10, fetch: listening });
const documents = new Map();

bot.use(async (ctx, next) => {
  await next();
  tell({ handled: Object.keys(ctx.update).find((key) => key !== "update_id"), user: ctx.from.id });
});

const bytes = (length) => Uint8Array.from({ length }, (_, index) => index % 256);
const uploaded = (content, filename) => new InputFile(content, { filename });

bot.command("photo", (ctx) =>
  ctx.api.sendPhoto({ chat_id: ctx.chatId, photo: uploaded(bytes(64 * 256), "tea.jpg"), caption: "a photo" }));

bot.command("document", (ctx) =>
  ctx.api.sendDocument({
    chat_id: ctx.chatId,
    document: uploaded(bytes(1024 * 256), "tea.bin"),
    caption: "a document",
  }));

bot.command("album", (ctx) =>
  ctx.api.sendMediaGroup({
    chat_id: ctx.chatId,
    media: new MediaGroupBuilder()
      .photo({ media: uploaded(Buffer.from("one".repeat(1000)), "one.jpg"), caption: "one" })
      .photo({ media: uploaded(Buffer.from("two".repeat(1000)), "two.jpg"), caption: "two" })
      .build(),
  }));

bot.command("edit", async (ctx) => {
  const sent = await ctx.reply("first");
  await ctx.api.editMessageText({ chat_id: sent.chat.id, message_id: sent.message_id, text: "second" });
});

bot.command("keyboard", (ctx) =>
  ctx.reply("Tea?", { reply_markup: new InlineKeyboardBuilder().text("Yes", "tea:yes").build() }));

bot.on("callback_query", async (ctx) => {
  await ctx.answerCallbackQuery({ text: "noted" });
  const { chat, message_id } = ctx.callbackQuery.message;
  await ctx.api.editMessageText({ chat_id: chat.id, message_id, text: "Tea: yes" });
});

bot.command("download", async (ctx) => {
  const file = await ctx.api.getFile({ file_id: documents.get(ctx.chatId) });
  const response = await fetch(`${API_ROOT}/file/bot${BOT_TOKEN}/${file.file_path}`);
  const content = Buffer.from(await response.arrayBuffer());
  await ctx.reply(`${content.length} ${createHash("sha256").update(content).digest("hex")}`);
});

bot.command("slow", async (ctx) => {
  tell({ began: ctx.message.text });
  await sleep(400);
  await ctx.reply(`echo: ${ctx.message.text}`);
});

bot.on("message", (ctx) => {
  if (!ctx.message.document) return ctx.reply(`echo: ${ctx.message.text}`);
  documents.set(ctx.chatId, ctx.message.document.file_id);
});

const ready = () => tell({ ready: true });

if (WEBHOOK_PORT) {
  const url = `http://127.0.0.1:${WEBHOOK_PORT}/hook`;
  await bot.api.setWebhook({ url, secret_token: WEBHOOK_SECRET });
  ready();
  await startWebhook(bot, {
    port: Number(WEBHOOK_PORT),
    hostname: "127.0.0.1",
    path: "/hook",
    secretToken: WEBHOOK_SECRET,
  });
} else {
  ready();
  await run(bot);
}
