// What report.py is for programs of Node.js: the prompts, the client's own tool, and one line of JSON for each way to ask.
import fs from "node:fs";

export const BASE = process.env.SERVICE_URL;
export const TOKEN = process.env.SERVICE_TOKEN;
export const MODEL = "callgate";
export const UNKNOWN = "no-such-model";
export const WEATHER = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const PROMPTS = JSON.parse(process.env.PROMPTS);
const EXPECTED = JSON.parse(process.env.EXPECTED);
const LEFT_S = 150; // see report.py
let asked = [];

export function weather({ city }) {
  asked.push(city);
  return `${city} is cold`;
}

const leftStreams = () => fs.readFileSync(process.env.LEFT_FILE, "utf8").split("\n").length;

/** Whether the service leaves the model, too, while this process is still there. */
async function wasLeft(before) {
  for (let waited = 0; waited < LEFT_S; waited += 0.05) {
    if (leftStreams() > before) return true;
    await new Promise((done) => setTimeout(done, 50));
  }
  return false;
}

async function tried(way, deed) {
  if (!way[deed]) return `- ${way.lacks?.[deed] ?? "not offered by the client"}`;
  asked = [];
  const before = leftStreams();
  let got;
  try {
    got = await way[deed](PROMPTS[deed]);
  } catch (error) {
    if (deed !== "error") return `${error.name}: ${String(error.message).slice(0, 300)}`;
    got = error.status ?? error.statusCode ?? error.lastError?.statusCode ?? String(error);
  }
  if (deed === "parallel" || deed === "its") got = [asked.sort(), got];
  if (deed === "stream") got = [got.join(""), got.length > 1];
  if (deed === "abort") got = [got, await wasLeft(before)];
  return JSON.stringify(got) === JSON.stringify(EXPECTED[deed]) ? "ok" : `got ${JSON.stringify(got).slice(0, 300)}`;
}

/** Try every deed in every way, and print what came of it. */
export async function run(ways) {
  for (const [way, deeds] of Object.entries(ways)) {
    const rows = {};
    for (const deed of Object.keys(EXPECTED)) rows[deed] = await tried(deeds, deed);
    console.log(JSON.stringify({ way, rows }).replace('{"way":', '{"way": '));
  }
  process.exit(0); // Kept connections would hold the process up.
}

/** All the texts of a stream. */
export async function all(pieces) {
  const found = [];
  for await (const piece of pieces) if (piece) found.push(piece);
  return found;
}

/** The first text of a stream, which is then left by `leave`. */
export async function first(pieces, leave) {
  for await (const piece of pieces) {
    if (piece) {
      leave?.();
      return piece;
    }
  }
}
