// BullMQ, on Redis or PostgreSQL, asked the same as the peers of Python: `node bullmq.mjs <work> <store> <ground>`.
// A work may end in `_c5` or `_c50`: the concurrency of its worker. A drain ends when the last job is moved to completed.

import http from "node:http";
import { Queue, Worker, createPostgresBackend } from "bullmq";
import IORedis from "ioredis";
import pg from "pg";

const CALLERS = 50;
const BATCH = 500;
const IDLE = 300;
const IDLE_PAUSE_MS = 4;
const LETTERS = 20_000;
const TOKEN = "123456789:AAE-bench-bench-bench-bench-bench-0";
const FILLING = "Your order has left the warehouse and will be with you soon. ".repeat(4).slice(0, 191);

const [asked, store, text] = process.argv.slice(2);
const ground = JSON.parse(text);
const url = ground[store];
const isPostgres = url.startsWith("postgres");
const [, work, concurrency] = asked.match(/^(.*?)(?:_c(\d+))?$/);
const agent = new http.Agent({ keepAlive: true, maxSockets: 64 });
const seenAt = new Map();

const share = (of) => Math.max(20, Math.floor((of * ground.letters) / LETTERS));
const fields = (number) => ({
  chat_id: 1_000_000 + (number % 400),
  text: `${String(number).padStart(8, "0")} ${FILLING}`,
});
const job = (number) => ({ name: "send", data: { number, fields: fields(number) } });
// The stub tells CLOCK_MONOTONIC in seconds; hrtime is the same clock.
const now = () => Number(process.hrtime.bigint()) / 1e9;

function post(wanted) {
  const body = JSON.stringify(wanted);
  const headers = { "Content-Type": "application/json", "Content-Length": Buffer.byteLength(body) };
  const options = { agent, host: "127.0.0.1", port: ground.stub_port, method: "POST", path: `/bot${TOKEN}/sendMessage`, headers };
  return new Promise((resolve, reject) => {
    const request = http.request(options, (answer) => {
      const parts = [];
      answer.on("data", (part) => parts.push(part));
      answer.on("end", () => resolve(JSON.parse(Buffer.concat(parts).toString()).result));
      answer.on("error", reject);
    });
    request.on("error", reject);
    request.end(body);
  });
}

const factory = isPostgres ? [createPostgresBackend] : [];
const connection = () =>
  isPostgres
    ? { connectionString: url, max: CALLERS, migrate: true }
    : { host: new URL(url).hostname, port: Number(new URL(url).port), maxRetriesPerRequest: null };

async function empty() {
  if (isPostgres) {
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    const found = await client.query("SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'");
    for (const row of found.rows) await client.query(`DROP SCHEMA "${row.nspname}" CASCADE`);
    await client.query("CREATE SCHEMA public");
    await client.end();
  } else {
    const client = new IORedis(url);
    await client.flushall();
    await client.quit();
  }
}

async function bytesKept() {
  if (isPostgres) return null;
  const client = new IORedis(url);
  const told = await client.info("memory");
  await client.quit();
  const figure = (name) => Number(told.match(new RegExp(`${name}:(\\d+)`))[1]);
  return figure("used_memory") - figure("mem_aof_buffer") - figure("mem_clients_normal");
}

async function accept(queue, letters, callers) {
  await queue.add("send", job(letters).data);
  const began = now();
  const caller = async (first) => {
    for (let number = first; number < letters; number += callers) {
      const one = job(number);
      await queue.add(one.name, one.data);
    }
  };
  await Promise.all(Array.from({ length: callers }, (_, first) => caller(first)));
  return letters / (now() - began);
}

async function fill(queue, letters) {
  for (let first = 0; first < letters; first += BATCH) {
    const many = Math.min(BATCH, letters - first);
    await queue.addBulk(Array.from({ length: many }, (_, more) => job(first + more)));
  }
}

function worker() {
  const process_ = async ({ data }) => {
    const message = await post(data.fields);
    const waiting = seenAt.get(data.number);
    if (waiting !== undefined) waiting(message.seen_at);
  };
  const options = { connection: connection(), concurrency: Number(concurrency ?? 50), autorun: false };
  return new Worker("bench", process_, options, ...factory);
}

async function drain(queue) {
  await fill(queue, ground.letters);
  const one = worker();
  await one.waitUntilReady();
  let done = 0;
  const ended = new Promise((resolve) => one.on("completed", () => (++done === ground.letters ? resolve() : undefined)));
  const began = now();
  one.run();
  await ended;
  return { drain: ground.letters / (now() - began), rss_mb: process.memoryUsage().rss / 1e6 };
}

async function idle(queue) {
  const one = worker();
  one.run();
  await one.waitUntilReady();
  const taken = [];
  for (let number = 0; number <= share(IDLE); number++) {
    await new Promise((resolve) => setTimeout(resolve, IDLE_PAUSE_MS));
    const seen = new Promise((resolve) => seenAt.set(number, resolve));
    const began = now();
    await queue.add("send", job(number).data);
    taken.push((await seen) - began);
  }
  const sorted = taken.slice(1).sort((one, other) => one - other);
  // As Python's inclusive quantiles: between the two neighbours.
  const at = (part) => {
    const place = part * (sorted.length - 1);
    const low = Math.floor(place);
    return sorted[low] + ((sorted[low + 1] ?? sorted[low]) - sorted[low]) * (place - low);
  };
  return { idle_p50_ms: at(0.5) * 1000, idle_p99_ms: at(0.99) * 1000 };
}

async function measure() {
  await empty();
  const queue = new Queue("bench", { connection: connection() }, ...factory);
  await queue.waitUntilReady();
  switch (work) {
    case "accept_1":
      return { accept_1: await accept(queue, share(2_000), 1) };
    case "accept_50": {
      const before = await bytesKept();
      const rate = await accept(queue, ground.letters, CALLERS);
      const after = await bytesKept();
      return { accept_50: rate, ...(before === null ? {} : { bytes_each: (after - before) / ground.letters }) };
    }
    case "accept_batch": {
      const began = now();
      await fill(queue, 2 * ground.letters);
      return { accept_batch: (2 * ground.letters) / (now() - began) };
    }
    case "drain":
      return drain(queue);
    case "idle":
      return idle(queue);
    default:
      throw new Error(`unknown work: ${work}`);
  }
}

console.log(JSON.stringify(await measure()));
process.exit(0);
