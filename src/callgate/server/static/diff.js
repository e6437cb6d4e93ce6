// A unified diff as rows with line numbers, and the difference between two short texts. A line that was added or taken away is
// told by its sign and by words for a screen reader, not by colour alone. What is not shown is counted.

import { el, refill } from "./dom.js";
import { many, shown } from "./text.js";

const LINES_SHOWN = 300;
const HUNK = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@(.*)$/;
const WORDS = { "+": "added", "-": "removed" };

/** The rows of a unified diff: `{sign, text, old, now}`. */
export function rowsOf(text) {
  const rows = [];
  let old = 0;
  let now = 0;
  let inHunk = false;
  const lines = text.replace(/\n$/, "").split("\n");
  for (const line of lines) {
    const hunk = HUNK.exec(line);
    if (hunk) {
      [old, now, inHunk] = [Number(hunk[1]), Number(hunk[2]), true];
      rows.push({ sign: "@", text: line });
    } else if (inHunk && line[0] === "+") rows.push({ sign: "+", text: line.slice(1), now: now++ });
    else if (inHunk && line[0] === "-") rows.push({ sign: "-", text: line.slice(1), old: old++ });
    else if (inHunk && (line[0] === " " || line === "")) rows.push({ sign: " ", text: line.slice(1), old: old++, now: now++ });
    else rows.push({ sign: inHunk ? "\\" : "f", text: line });
  }
  return rows;
}

/** Whether a text looks like a unified diff at all; a preview may be anything. */
export const isDiff = (text) => /^@@ -\d/m.test(text) && /^\+\+\+ /m.test(text);

/** The diff as an element. */
export function diffView(text, label = "Preview of the change") {
  return rowsView(rowsOf(text), label);
}

function rowsView(rows, label) {
  const added = rows.filter((row) => row.sign === "+").length;
  const removed = rows.filter((row) => row.sign === "-").length;
  const files = rows.filter((row) => row.sign === "f" && /^(\+\+\+|---) /.test(row.text));
  const name = (files.find((row) => row.text.startsWith("+++") && !row.text.includes("/dev/null")) || files[0])?.text.slice(4);
  const body = el("tbody");
  const head = el("thead", { class: "unseen" }, el("tr", {}, ["Old line", "New line", "Sign", "Text"].map((words) => el("th", { scope: "col" }, words))));
  const table = el("table", { class: "diff" }, el("caption", { class: "unseen" }, label), head, body);
  const wanted = rows.filter((row) => !(row.sign === "f" && files.includes(row)));
  body.append(...wanted.slice(0, LINES_SHOWN).map(rowView));
  const rest = wanted.length - LINES_SHOWN;
  const more = rest > 0 && el("button", { type: "button", class: "link more" }, `${many(rest, "more line")} not shown: show them`);
  if (more) {
    more.addEventListener("click", () => {
      body.append(...wanted.slice(LINES_SHOWN).map(rowView));
      more.remove();
    });
  }
  return el(
    "figure",
    { class: "diffbox" },
    el(
      "figcaption",
      {},
      el("span", { class: "name" }, name ? shown(name.replace(/\t.*$/, "")) : label),
      el("span", { class: "sums" }, el("span", { class: "plus" }, `+${added}`), " ", el("span", { class: "minus" }, `−${removed}`)),
    ),
    el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": label }, table),
    more,
  );
}

function rowView({ sign, text, old, now }) {
  const kinds = { "+": "add", "-": "del", "@": "hunk", "\\": "note", f: "note" };
  const words = WORDS[sign] && el("span", { class: "unseen" }, `${WORDS[sign]}: `);
  return el(
    "tr",
    { class: kinds[sign] },
    el("td", { class: "n" }, old ?? ""),
    el("td", { class: "n" }, now ?? ""),
    el("td", { class: "sign", "aria-hidden": "true" }, "+-".includes(sign) ? sign.replace("-", "−") : ""),
    el("td", { class: "line" }, words, shown(text)),
  );
}

// Between two texts -------------------------------------------------------------------------------------------------------

const COMPARED_MAX = 600;

/** How a text was changed by hand, as a diff; nothing if it is the same, a sentence if it is too long to compare. */
export function changeView(before, after) {
  if (before === after) return null;
  const old = before.split("\n");
  const now = after.split("\n");
  if (old.length > COMPARED_MAX || now.length > COMPARED_MAX) return el("p", { class: "quiet" }, "Changed; too long to compare here.");
  return rowsView(near(compared(old, now)), "What you changed");
}

function compared(old, now) {
  // The longest common run of lines, by the textbook's table.
  const table = Array.from({ length: old.length + 1 }, () => new Uint16Array(now.length + 1));
  for (let i = old.length - 1; i >= 0; i -= 1) {
    for (let j = now.length - 1; j >= 0; j -= 1) {
      table[i][j] = old[i] === now[j] ? table[i + 1][j + 1] + 1 : Math.max(table[i + 1][j], table[i][j + 1]);
    }
  }
  const rows = [];
  let i = 0;
  let j = 0;
  while (i < old.length || j < now.length) {
    if (i < old.length && j < now.length && old[i] === now[j]) rows.push({ sign: " ", text: old[i], old: (i += 1), now: (j += 1) });
    else if (j >= now.length || (i < old.length && table[i + 1][j] >= table[i][j + 1])) rows.push({ sign: "-", text: old[i], old: (i += 1) });
    else rows.push({ sign: "+", text: now[j], now: (j += 1) });
  }
  return rows;
}

function near(rows) {
  const keep = new Set();
  rows.forEach((row, at) => row.sign !== " " && [-2, -1, 0, 1, 2].forEach((by) => keep.add(at + by)));
  return rows.filter((row, at) => keep.has(at));
}

/** Puts a changing comparison into a place. */
export const showChange = (place, before, after) => refill(place, changeView(before, after));
