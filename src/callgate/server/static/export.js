// A conversation as a Markdown file: what was said, what was called and what came of it, in the order of the history.

import { exchanges } from "./turn.js";
import { readable } from "./bigtext.js";
import { plain } from "./text.js";

const RESULT_MAX = 20_000;

/** A text in a fence that nothing in it can close. */
function fenced(text, language = "") {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([ticks]) => ticks.length));
  const fence = "`".repeat(longest + 1);
  return `${fence}${language}\n${plain(text)}\n${fence}`;
}

function stepText({ part, record }) {
  if (part.functionCall) {
    const { name, args = {} } = record?.call ?? part.functionCall;
    const { status, value, error } = record?.result ?? {};
    const result = status === "finished" ? readable(value) : (error ?? "");
    const shown = result.length > RESULT_MAX ? `${result.slice(0, RESULT_MAX)}\n... (${result.length} characters)` : result;
    return [`**Call of ${plain(name)}**${status && status !== "finished" ? ` (${status.replace("_", " ")})` : ""}`, fenced(JSON.stringify(args, null, 2), "json"), shown && fenced(shown)].filter(Boolean).join("\n\n");
  }
  if (part.functionResponse || part.thought) return "";
  if (typeof part.text === "string") return plain(part.text).trim();
  return part.inlineData ? `(${plain(part.inlineData.mimeType)})` : "";
}

/** The whole conversation as text. */
export function exportText(session) {
  const found = exchanges(session.contents || [], session.calls || [], session.exchanges || []);
  const blocks = [`# ${plain(session.title || "Conversation").replace(/\s+/g, " ")}`];
  for (const { said, parts, steps, known } of found) {
    if (said !== null) blocks.push("## You", plain(said).trim(), ...parts.filter((part) => part.inlineData).map((part) => `(${plain(part.inlineData.mimeType)})`));
    blocks.push("## Answer", ...steps.map(stepText));
    if (known?.failure) blocks.push(`(${plain(known.failure.message || "failed")})`);
  }
  return `${blocks.filter(Boolean).join("\n\n")}\n`;
}
