// Notifies an operator through Peik's REST API, from TypeScript. Needs nothing but Node 20 or newer and its fetch.
// Types that can be erased and nothing else: Node 22.18 and newer run this file as it is, and any compiler turns it into JavaScript.
//
//   PEIK_KEY=… node notify.ts operator-7 17 "Amir Temur 1" 41.3111 69.2797 photo.png report.pdf

import { readFile } from "node:fs/promises";

type Letter = { method: string; params: Record<string, unknown>; metadata: { user_id: string; message_type: string } };
type Attached = { field: string; name: string; type: string; content: Uint8Array<ArrayBuffer> };

const peik: string = process.env.PEIK_URL ?? "http://127.0.0.1:8081";
const tries: number = 8;

/** The letter's id, once Peik has it on disk. Repeated on a bad network: the key makes one letter of all repeats. */
async function post(letter: Letter, key: string, file?: Attached): Promise<string> {
  for (let made = 1; ; made++) {
    let trouble: unknown;
    try {
      const answer: Response = await once(JSON.stringify({ ...letter, priority: 1, idempotency_key: key }), file);
      const body: string = await answer.text();
      if (answer.ok) return String(JSON.parse(body).id);
      trouble = new Error(`${answer.status}: ${body}`);
      // What is wrong with the call itself stays wrong.
      if (answer.status < 500 && answer.status !== 408 && answer.status !== 429) made = tries;
    } catch (error) {
      trouble = error; // nobody knows whether Peik has got it
    }
    if (made >= tries) throw trouble;
    await new Promise((resolve) => setTimeout(resolve, Math.min(250 * 2 ** made, 15000)));
  }
}

function once(letter: string, file?: Attached): Promise<Response> {
  const headers: Record<string, string> = { Authorization: `Bearer ${process.env.PEIK_KEY}` };
  let body: string | FormData = letter;
  if (file !== undefined) {
    body = new FormData();
    body.append("letter", letter);
    body.append(file.field, new Blob([file.content], { type: file.type }), file.name);
  }
  return fetch(`${peik}/v1/letters`, { method: "POST", headers, body, signal: AbortSignal.timeout(20000) });
}

async function main(operator: string, task: string, address: string, place: number[], photo: string, report: string): Promise<string[]> {
  const headers: Record<string, string> = { Authorization: `Bearer ${process.env.PEIK_KEY}` };
  const found: Response = await fetch(`${peik}/v1/users/${encodeURIComponent(operator)}/link`, { headers });
  if (!found.ok) throw new Error(`${found.status}: ${await found.text()}`);
  const link = await found.json();
  if (!link.linked) throw new Error(`${operator} has linked no chat.`);
  const chat_id: number = Number(link.chat_id); // as from Python: one key, one call
  const words = JSON.parse(await readFile(new URL("texts.json", import.meta.url), "utf8"));
  const texts = words[String(link.language ?? "").split("-")[0]] ?? words.ru;
  const said = (name: string): string => texts[name].replaceAll("{task}", () => task).replaceAll("{address}", () => address);

  const send = (kind: string, method: string, params: Record<string, unknown>, file?: Attached): Promise<string> => {
    const letter: Letter = { method, params: { chat_id, ...params }, metadata: { user_id: operator, message_type: kind } };
    return post(letter, `task-${task}-${kind}-${operator}`, file);
  };
  const picture: Attached = { field: "photo", name: "photo", type: "image/png", content: new Uint8Array(await readFile(photo)) };
  const paper: Attached = { field: "document", name: `task-${task}.pdf`, type: "application/pdf", content: new Uint8Array(await readFile(report)) };
  return [
    await send("task_assigned", "sendMessage", { text: said("task_assigned") }),
    await send("photo", "sendPhoto", { caption: said("photo") }, picture),
    await send("report", "sendDocument", { caption: said("report") }, paper),
    await send("location", "sendLocation", { latitude: place[0], longitude: place[1] }),
  ];
}

const [operator, task, address, latitude, longitude, photo, report] = process.argv.slice(2);
console.log(JSON.stringify(await main(operator, task, address, [Number(latitude), Number(longitude)], photo, report)));
