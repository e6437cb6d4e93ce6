// The time of one exchange as a picture: one row for the model and one for each call, with what it waited for and when it ran.
// Kinds differ in pattern as well as in colour, and a table says the same in words.

import { STATES } from "./call.js";
import { el, freshId, svg } from "./dom.js";
import { duration, oneLine } from "./text.js";

const TOP = 20;
const WIDE = { row: 34, bar: 10, line: 14, letter: 6.6, label: "label" };
const TIGHT = { row: 25, bar: 7, line: 12, letter: 5.6, label: "label tight" };
const MANY = 24; // rows from which on they are drawn tight
const KINDS = {
  model: { words: "model", label: "model" },
  queued: { words: "queued", label: "queued" },
  approval: { words: "waiting for approval", label: "waited for approval" },
  running: { words: "running", label: "ran" },
};

/** What happened when: rows of spans in seconds since the exchange began. */
export class Clock {
  constructor(now = () => performance.now() / 1000) {
    this.now = now;
    this.begin = now();
    this.rows = new Map();
    this.isLive = true;
    this.enter("model", "Model", "model");
  }

  at() {
    return this.now() - this.begin;
  }

  /** A row goes over into a kind of work; what it did before ends. */
  enter(id, label, kind) {
    if (!this.isLive) return;
    const row = this.rows.get(id) || { label, spans: [] };
    this.rows.set(id, row);
    row.label = label || row.label;
    this.leave(id);
    if (kind) row.spans.push({ kind, start: this.at(), end: null });
  }

  leave(id) {
    const open = this.rows.get(id)?.spans.at(-1);
    if (open && open.end === null) open.end = this.at();
  }

  /** Events of a quick call arrive together: how long it ran, the service knows better. */
  stretch(id, seconds) {
    const spans = this.rows.get(id)?.spans || [];
    const ran = spans.at(-1);
    if (ran?.kind !== "running" || !(seconds > ran.end - ran.start)) return;
    const before = spans.at(-2);
    ran.start = Math.max(before ? before.start : 0, ran.end - seconds);
    if (before) before.end = Math.min(before.end, ran.start);
  }

  /** An event of the run, put into its row. */
  take(event) {
    const call = event.call;
    switch (event.type) {
      case "call_proposed":
        return this.enter(call.id, call.name, "queued");
      case "approval_needed":
        this.leave("model");
        return this.enter(call.id, call.name, "approval");
      case "call_started":
        this.leave("model");
        return this.enter(call.id, call.name, "running");
      case "call_finished":
        this.leave(call.id);
        return this.stretch(call.id, event.result.duration_s);
      case "usage_reported":
        return this.leave("model");
      case "text_delta":
      case "thought_delta":
        return this.rows.get("model").spans.at(-1).end === null ? null : this.enter("model", "Model", "model");
      case "turn_ended":
        return this.enter("model", "Model", "model");
      case "run_ended":
      case "error":
        return this.stop();
      default:
        return null;
    }
  }

  stop() {
    for (const id of this.rows.keys()) this.leave(id);
    this.end = this.at();
    this.isLive = false;
    // The moment between the last answer and the end of the run is nobody's work.
    for (const row of this.rows.values()) row.spans = row.spans.filter((span) => span.end - span.start > 0.0005 || row.spans.length === 1);
  }

  picture() {
    const end = this.isLive ? this.at() : this.end;
    const rows = [...this.rows].map(([id, row]) => ({ id, ...row, spans: row.spans.map((span) => ({ ...span, end: span.end ?? end })) }));
    return { rows: rows.filter((row) => row.spans.length), end, isLive: this.isLive };
  }
}

/** The union of spans of some kinds: seconds in which at least one of them went on. */
export function busy(rows, kinds) {
  const spans = rows.flatMap((row) => row.spans.filter((span) => kinds.includes(span.kind))).sort((a, b) => a.start - b.start);
  let sum = 0;
  let until = -Infinity;
  for (const { start, end } of spans) {
    sum += Math.max(0, end - Math.max(start, until));
    until = Math.max(until, end);
  }
  return sum;
}

/** How many calls ran at the same time, at most. */
export function abreast(rows) {
  const steps = rows.flatMap((row) => row.spans.filter((span) => span.kind === "running").flatMap((span) => [[span.start, 1], [span.end, -1]]));
  steps.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  let now = 0;
  return steps.reduce((most, [, by]) => Math.max(most, (now += by)), 0);
}

/** Where the time went, in a sentence. */
export function sentence({ rows, end }) {
  const calls = rows.filter((row) => row.spans.some((span) => span.kind !== "model")).length;
  const parts = [
    [busy(rows, ["model"]), "model"],
    [busy(rows, ["running"]), "tools"],
    [busy(rows, ["approval"]), "waiting for approval"],
  ].filter(([seconds]) => seconds >= 0.0005);
  const side = abreast(rows);
  return `${duration(end)} in total: ${parts.map(([seconds, words]) => `${words} ${duration(seconds)}`).join(", ") || "nothing yet"}${
    calls > 1 ? `; ${["no call ran", "the calls ran one after another"][side] ?? `up to ${side} calls ran at the same time`}` : ""
  }.`;
}

function ticks(end) {
  const step = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120, 300, 600, 1800, 3600].find((each) => end / each <= 4) || end / 4;
  return Array.from({ length: Math.floor(end / step) + 1 }, (_, i) => i * step);
}

/** How a call ended, in a word, where it did not end well. */
const wrong = ({ outcome }) => (outcome && outcome !== "finished" && STATES[outcome]) || "";

/** The picture, as wide as it is told, with its legend and its table. */
export function timelineView(picture, width) {
  const { rows, end } = picture;
  const span = Math.max(end, 0.001);
  const inner = width - 4;
  const x = (seconds) => 1 + (seconds / span) * inner;
  const shape = rows.length > MANY ? TIGHT : WIDE;
  const height = TOP + rows.length * shape.row + 4;
  const title = freshId("timeline");
  const shots = rows.map((row, at) => rowView(row, TOP + at * shape.row, x, { width, ...shape }));
  const grid = ticks(span).map((at) => [
    svg("line", { x1: x(at), x2: x(at), y1: TOP - 6, y2: height, class: "grid" }),
    svg("text", { x: x(at), y: 11, class: "tick", "text-anchor": at ? (x(at) > width - 30 ? "end" : "middle") : "start" }, at ? duration(at) : "0"),
  ]);
  const image = svg(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-labelledby": title, class: "timeline" },
    svg("title", { id: title }, `Timeline. ${sentence(picture)}`),
    patterns(),
    grid,
    shots,
  );
  return el("div", { class: "timelinebox" }, el("p", { class: "sum" }, sentence(picture)), image, legend(rows), table(rows));
}

/** A name above its bars; how the call ended stands at the right where it did not end well. */
function rowView(row, top, x, { width, bar, line, letter, label }) {
  const short = oneLine(row.label, 200);
  const bad = wrong(row);
  const ended = bad && `✗ ${bad.toLowerCase()}`;
  const fits = Math.floor(width / letter) - (ended && ended.length + 2);
  return svg(
    "g",
    {},
    svg("text", { x: 0, y: top + line - 4, class: label }, svg("title", {}, short), cutInside(short, fits)),
    bad && svg("text", { x: width, y: top + line - 4, class: `${label} bad`, "text-anchor": "end" }, ended),
    row.spans.map(({ kind, start, end }, at) => {
      const isBad = bad && at === row.spans.length - 1;
      return svg(
        "rect",
        { x: x(start), y: top + line, width: Math.max(2, x(end) - x(start)), height: bar, rx: 2, class: `bar ${kind}${isBad ? " bad" : ""}`, fill: isBad && kind !== "approval" ? "url(#bad)" : FILLS[kind] },
        svg("title", {}, `${short}: ${KINDS[kind].label} ${duration(end - start)}${isBad ? `, ${bad.toLowerCase()}` : ""}`),
      );
    }),
  );
}

/** Names that begin alike differ at their ends, so what is too much goes from the middle. */
function cutInside(text, most) {
  if (text.length <= most) return text;
  const head = Math.ceil(most * 0.5);
  return `${text.slice(0, head)}…${text.slice(text.length - Math.max(1, most - head - 1))}`;
}

const FILLS = { queued: "url(#queued)", approval: "url(#approval)" };

function patterns() {
  return svg(
    "defs",
    {},
    svg("pattern", { id: "queued", width: 6, height: 6, patternUnits: "userSpaceOnUse" }, svg("circle", { cx: 3, cy: 3, r: 1, class: "dots" })),
    svg(
      "pattern",
      { id: "approval", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      svg("rect", { width: 3, height: 6, class: "stripes" }),
    ),
    svg("pattern", { id: "bad", width: 5, height: 5, patternUnits: "userSpaceOnUse" }, svg("path", { d: "M0 0l5 5M5 0l-5 5", class: "crosses" })),
  );
}

function legend(rows) {
  const used = new Set(rows.flatMap((row) => row.spans.map((span) => span.kind)));
  const swatch = (kind, fill) => svg("svg", { width: 18, height: 12, "aria-hidden": "true" }, svg("rect", { x: 0.5, y: 0.5, width: 17, height: 11, rx: 2, class: `bar ${kind}`, fill }));
  return el(
    "ul",
    { class: "legend" },
    Object.entries(KINDS).filter(([kind]) => used.has(kind)).map(([kind, { words }]) => el("li", {}, swatch(kind, FILLS[kind]), words)),
    rows.some((row) => wrong(row) && row.spans.at(-1).kind !== "approval") && el("li", {}, swatch("running bad", "url(#bad)"), "ran, with no good end"),
  );
}

function table(rows) {
  const sum = (row, kind) => row.spans.filter((span) => span.kind === kind).reduce((all, span) => all + span.end - span.start, 0);
  const cell = (seconds) => el("td", { class: "right" }, seconds >= 0.0005 ? duration(seconds) : "–");
  return el(
    "details",
    { class: "astable" },
    el("summary", {}, "Show as a table"),
    el(
      "table",
      {},
      el("thead", {}, el("tr", {}, ["Item", "Start", "Queued", "Asked", "Ran"].map((words, at) => el("th", { scope: "col", class: at ? "right" : null }, words)))),
      el(
        "tbody",
        {},
        rows.map((row) =>
          el(
            "tr",
            {},
            el("th", { scope: "row" }, oneLine(row.label, 60), wrong(row) && el("span", { class: "bad" }, ` ✗ ${wrong(row).toLowerCase()}`)),
            el("td", { class: "right" }, duration(row.spans[0].start)),
            cell(sum(row, "queued")),
            cell(sum(row, "approval")),
            cell(sum(row, "running") + sum(row, "model")),
          ),
        ),
      ),
    ),
  );
}
