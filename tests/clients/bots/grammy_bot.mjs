// The test bot as grammY's guide teaches it; only the API root is ours.
import { createHash } from "node:crypto";
import { createServer } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";

import { Bot, HttpError, InlineKeyboard, InputFile, InputMediaBuilder, webhookCallback } from "grammy";

const { API_ROOT, BOT_TOKEN, WEBHOOK_PORT, WEBHOOK_SECRET } = process.env;
const TRIES_MAX = 60;

const bot = new Bot(BOT_TOKEN, { client: { apiRoot: API_ROOT } });
const documents = new Map();

function tell(facts) {
  process.stdout.write(`${JSON.stringify(facts)}\n`);
}

// A call that got no answer is made again: grammY repeats its polls by itself, but nothing else.
bot.api.config.use(async (call, method, payload, signal) => {
  for (let tried = 1; method !== "getUpdates" && tried < TRIES_MAX; tried += 1) {
    try {
      const answer = await call(method, payload, signal);
      if (answer.ok || answer.error_code < 500) return answer;
      tell({ unanswered: method, why: answer.description });
    } catch (error) {
      if (!(error instanceof HttpError)) throw error;
      tell({ unanswered: method, why: String(error.error) });
    }
    await sleep(500);
  }
  return call(method, payload, signal);
});

bot.use(async (ctx, next) => {
  await next();
  tell({ handled: Object.keys(ctx.update).find((key) => key !== "update_id"), user: ctx.from.id });
});

const bytes = (length) => Uint8Array.from({ length }, (_, index) => index % 256);

bot.command("photo", (ctx) =>
  ctx.replyWithPhoto(new InputFile(bytes(64 * 256), "tea.jpg"), { caption: "a photo" }));

bot.command("document", (ctx) =>
  ctx.replyWithDocument(new InputFile(bytes(1024 * 256), "tea.bin"), { caption: "a document" }));

bot.command("album", (ctx) =>
  ctx.replyWithMediaGroup([
    InputMediaBuilder.photo(new InputFile(Buffer.from("one".repeat(1000)), "one.jpg"), { caption: "one" }),
    InputMediaBuilder.photo(new InputFile(Buffer.from("two".repeat(1000)), "two.jpg"), { caption: "two" }),
  ]));

bot.command("edit", async (ctx) => {
  const sent = await ctx.reply("first");
  await ctx.api.editMessageText(sent.chat.id, sent.message_id, "second");
});

bot.command("keyboard", (ctx) =>
  ctx.reply("Tea?", { reply_markup: new InlineKeyboard().text("Yes", "tea:yes") }));

bot.callbackQuery("tea:yes", async (ctx) => {
  await ctx.answerCallbackQuery("noted");
  await ctx.editMessageText("Tea: yes");
});

bot.on("message:document", (ctx) => {
  documents.set(ctx.chat.id, ctx.message.document.file_id);
});

bot.command("download", async (ctx) => {
  const file = await ctx.api.getFile(documents.get(ctx.chat.id));
  const response = await fetch(`${API_ROOT}/file/bot${BOT_TOKEN}/${file.file_path}`);
  const content = Buffer.from(await response.arrayBuffer());
  await ctx.reply(`${content.length} ${createHash("sha256").update(content).digest("hex")}`);
});

bot.command("slow", async (ctx) => {
  tell({ began: ctx.message.text });
  await sleep(400);
  await ctx.reply(`echo: ${ctx.message.text}`);
});

bot.on("message:text", (ctx) => ctx.reply(`echo: ${ctx.message.text}`));

bot.catch((failure) => console.error(failure.error));

const ready = () => tell({ ready: true });

if (WEBHOOK_PORT) {
  const server = createServer(webhookCallback(bot, "http", { secretToken: WEBHOOK_SECRET }));
  process.once("SIGTERM", () => server.close(() => process.exit(0)));
  server.listen(Number(WEBHOOK_PORT), "127.0.0.1", async () => {
    await bot.api.setWebhook(`http://127.0.0.1:${WEBHOOK_PORT}/hook`, { secret_token: WEBHOOK_SECRET });
    ready();
  });
} else {
  process.once("SIGTERM", () => bot.stop());
  await bot.start({ onStart: ready });
}
