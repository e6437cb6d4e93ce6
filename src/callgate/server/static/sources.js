// What an answer is based on: sources and search suggestions as links, steps that ran at the provider, media that it made.
// The provider's HTML is never used: the service has read its links, and only web addresses become links.

import { el } from "./dom.js";
import { mediaView, textView } from "./bigtext.js";
import { shown } from "./text.js";

const link = (url, text) => {
  let isWeb = false;
  try {
    isWeb = ["https:", "http:"].includes(new URL(url).protocol);
  } catch {
    // Not an address: shown as text.
  }
  if (!isWeb) return el("span", {}, shown(text));
  return el("a", { href: url, target: "_blank", rel: "noopener noreferrer nofollow", referrerpolicy: "no-referrer" }, shown(text));
};

/** The sources, suggestions, pages and ratings of one answer; null if there are none. */
export function sourcesView(metadata) {
  const { sources = [], search_links: links = [], urls = [], queries = [] } = metadata;
  const rated = ratings(metadata);
  if (![sources, links, urls, queries, rated].some((found) => found.length)) return null;
  return el(
    "div",
    { class: "sources", role: "group", "aria-label": "Sources" },
    sources.length > 0 && [el("h3", {}, "Sources"), el("ol", {}, sources.map((source) => el("li", {}, link(source.uri, source.title || source.uri), source.domain && source.domain !== source.title && el("span", { class: "quiet" }, " ", shown(source.domain)), source.license && el("span", { class: "quiet" }, " license: ", shown(source.license)))))],
    urls.length > 0 && [el("h3", {}, "Pages read"), el("ul", {}, urls.map((read) => el("li", {}, link(read.url, read.url), !read.status.endsWith("_SUCCESS") && el("span", { class: "quiet" }, " could not be read"))))],
    links.length > 0 && el("p", { class: "suggestions" }, el("span", { class: "quiet" }, "Google Search suggestions"), links.map(({ text, url }) => el("span", { class: "chip" }, link(url, text)))),
    !links.length && queries.length > 0 && el("p", { class: "quiet" }, `Searched for: ${shown(queries.join(", "))}`),
    rated.map((line) => el("p", { class: "quiet rating" }, shown(line))),
  );
}

/** Safety ratings that are more than negligible, and how likely the answer was, where that was asked for. */
function ratings({ safety_ratings: given = [], logprobs = [], avg_logprobs: average }) {
  const serious = given.filter(({ category, probability, blocked }) => category && (probability !== "NEGLIGIBLE" || blocked === true));
  const words = ({ category = "", probability = "unknown", blocked }) => `${String(category).replace("HARM_CATEGORY_", "").replaceAll("_", " ")}: ${probability}${blocked === true ? ", blocked" : ""}`.toLowerCase();
  return [...serious.map((rating) => `Safety rating: ${words(rating)}`), ...(logprobs.length && typeof average === "number" ? [`Average log probability: ${Number(average.toPrecision(4))}`] : [])];
}

const STEPS = { code: "Code run by the provider", code_result: "Output of the code", tool_call: "Tool run by the provider", tool_result: "Result of the provider's tool" };

/** A step that ran at the provider. */
export function stepView(step) {
  const { value = {} } = step;
  const said = value.code ?? value.output ?? JSON.stringify(value.args ?? value.response ?? value, null, 2);
  const words = `${STEPS[step.kind] || "Step of the provider"}${step.tool && step.tool !== "code_execution" ? `: ${step.tool}` : ""}`;
  return el("details", { class: "step", open: step.kind.startsWith("code") }, el("summary", {}, shown(words)), textView(String(said), words));
}

/** The parts of a history that are steps at the provider, in the form of events. */
export function stepOf(part) {
  if (part.executableCode) return { kind: "code", tool: "code_execution", value: part.executableCode };
  if (part.codeExecutionResult) return { kind: "code_result", tool: "code_execution", value: part.codeExecutionResult };
  if (part.toolCall) return { kind: "tool_call", tool: String(part.toolCall.toolType || "").toLowerCase(), value: part.toolCall };
  if (part.toolResponse) return { kind: "tool_result", tool: String(part.toolResponse.toolType || "").toLowerCase(), value: part.toolResponse };
  return null;
}

/** An image, a sound or a file that the model made. */
export function madeView({ data, mime_type: kind, name, uri, transcript: text }) {
  if (uri) return el("p", { class: "medium" }, link(uri, name || uri));
  return mediaView({ inlineData: { data, mimeType: kind, displayName: name }, audioTranscription: { text } }, "model");
}
