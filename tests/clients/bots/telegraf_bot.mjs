// The test bot as Telegraf's README teaches it; only the API root is ours.
import { createHash } from "node:crypto";
import { createServer } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";

import { Input, Markup, Telegraf } from "telegraf";
import { message } from "telegraf/filters";

const { API_ROOT, BOT_TOKEN, WEBHOOK_PORT, WEBHOOK_SECRET } = process.env;
const TRIES_MAX = 60;

const bot = new Telegraf(BOT_TOKEN, { telegram: { apiRoot: API_ROOT } });
const documents = new Map();

function tell(facts) {
  process.stdout.write(`${JSON.stringify(facts)}\n`);
}

// A call that got no answer is made again: Telegraf repeats its polls by itself, but nothing else.
async function patiently(call) {
  for (let tried = 1; tried < TRIES_MAX; tried += 1) {
    try {
      return await call();
    } catch (error) {
      const unanswered = error.name === "FetchError" || (error.response?.error_code ?? 0) >= 500;
      if (!unanswered) throw error;
      tell({ unanswered: error.on?.method ?? "a call", why: error.message });
    }
    await sleep(500);
  }
  return call();
}

bot.use(async (ctx, next) => {
  await next();
  tell({ handled: ctx.updateType, user: ctx.from.id });
});

const bytes = (length) => Buffer.from(Uint8Array.from({ length }, (_, index) => index % 256));

bot.command("photo", (ctx) =>
  patiently(() => ctx.replyWithPhoto(Input.fromBuffer(bytes(64 * 256), "tea.jpg"), { caption: "a photo" })));

bot.command("document", (ctx) =>
  patiently(() => ctx.replyWithDocument(Input.fromBuffer(bytes(1024 * 256), "tea.bin"), { caption: "a document" })));

bot.command("album", (ctx) =>
  patiently(() =>
    ctx.replyWithMediaGroup([
      { type: "photo", media: Input.fromBuffer(Buffer.from("one".repeat(1000)), "one.jpg"), caption: "one" },
      { type: "photo", media: Input.fromBuffer(Buffer.from("two".repeat(1000)), "two.jpg"), caption: "two" },
    ])));

bot.command("edit", async (ctx) => {
  // By default Telegraf calls the first method within its answer to a webhook, and never learns the result.
  ctx.telegram.webhookReply = false;
  const sent = await patiently(() => ctx.reply("first"));
  await patiently(() => ctx.telegram.editMessageText(sent.chat.id, sent.message_id, undefined, "second"));
});

bot.command("keyboard", (ctx) =>
  patiently(() => ctx.reply("Tea?", Markup.inlineKeyboard([Markup.button.callback("Yes", "tea:yes")]))));

bot.action("tea:yes", async (ctx) => {
  await patiently(() => ctx.answerCbQuery("noted"));
  await patiently(() => ctx.editMessageText("Tea: yes"));
});

bot.on(message("document"), (ctx) => {
  documents.set(ctx.chat.id, ctx.message.document.file_id);
});

bot.command("download", async (ctx) => {
  const link = await patiently(() => ctx.telegram.getFileLink(documents.get(ctx.chat.id)));
  const content = Buffer.from(await (await fetch(link)).arrayBuffer());
  await patiently(() => ctx.reply(`${content.length} ${createHash("sha256").update(content).digest("hex")}`));
});

bot.command("slow", async (ctx) => {
  tell({ began: ctx.message.text });
  await sleep(400);
  await patiently(() => ctx.reply(`echo: ${ctx.message.text}`));
});

bot.on(message("text"), (ctx) => patiently(() => ctx.reply(`echo: ${ctx.message.text}`)));

bot.catch((error) => console.error(error));

const ready = () => tell({ ready: true });

if (WEBHOOK_PORT) {
  const hook = bot.webhookCallback("/hook", { secretToken: WEBHOOK_SECRET });
  const server = createServer(hook);
  process.once("SIGTERM", () => server.close(() => process.exit(0)));
  server.listen(Number(WEBHOOK_PORT), "127.0.0.1", async () => {
    bot.botInfo = await bot.telegram.getMe();
    await bot.telegram.setWebhook(`http://127.0.0.1:${WEBHOOK_PORT}/hook`, { secret_token: WEBHOOK_SECRET });
    ready();
  });
} else {
  process.once("SIGTERM", () => bot.stop("SIGTERM"));
  await bot.launch(ready);
}
