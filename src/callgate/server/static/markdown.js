// Markdown in, elements out. A small and strict reader: no HTML, no remote pictures, links to http, https and mailto only;
// whatever it does not know stays text. `MarkdownStream` renders an answer while it arrives: a block that another one has
// followed is final and is never touched again, and a long one is not read again for every piece, so long answers cost no
// more at their end than at their beginning.

import { codeNodes } from "./code.js";
import { el } from "./dom.js";
import { formula } from "./math.js";
import { plain, shown } from "./text.js";

const DEPTH_MAX = 8; // of lists and quotes in one another, and of marks in one another

// Blocks -----------------------------------------------------------------------------------------------------------------

const FENCE = /^( {0,3})(`{3,}|~{3,})[ \t]*([^`\n]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*$/;
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(?:[ \t]+|$)/;
const TABLE_LINE = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;
const BLANK = /^[ \t]*$/;
const DEFINITION = /^ {0,3}\[(\^(?=\d|fn|note)|(?!\^))([^\]\[\n]{1,100})\]:[ \t]*(\S.*)$/;
const NOTE = /^\[\^(\d{1,3}|(?:fn|note)[\w-]{0,20})\]/; // not every class of characters in prose is a note

/** The blocks of a text: what kind each is, its lines, and the line at which it begins. */
export function blocks(lines) {
  const found = [];
  let at = 0;
  while (at < lines.length) {
    if (BLANK.test(lines[at])) {
      at += 1;
      continue;
    }
    let block = null;
    for (const read of READERS) if ((block = read(lines, at))) break;
    block.start = at;
    found.push(block);
    at = block.end;
  }
  return found;
}

const READERS = [readFence, readFormula, readHeading, readRule, readQuote, readList, readTable, readDefinition, readParagraph];

function readFence(lines, at) {
  const open = FENCE.exec(lines[at]);
  if (!open) return null;
  const closing = new RegExp(`^ {0,3}\\${open[2][0]}{${open[2].length},}[ \\t]*$`);
  let end = at + 1;
  while (end < lines.length && !closing.test(lines[end])) end += 1;
  const strip = new RegExp(`^ {0,${open[1].length}}`);
  return { kind: "code", mark: open[2], language: open[3].trim(), lines: lines.slice(at + 1, end).map((line) => line.replace(strip, "")), end: end + 1 };
}

/** A formula on lines of its own is shown as it was written: its backslashes and stars mean something else there. */
function readFormula(lines, at) {
  const open = /^ {0,3}(\$\$|\\\[)/.exec(lines[at])?.[1];
  if (!open) return null;
  const close = open === "$$" ? "$$" : "\\]";
  const first = lines[at].trim();
  let end = at;
  const closed = first.indexOf(close, 2);
  if (closed >= 0 && (closed !== first.length - 2 || !FORMULA.test(first.slice(2, -2)))) return null;
  if (closed < 0) {
    do end += 1;
    while (end < lines.length && !BLANK.test(lines[end]) && !lines[end].trimEnd().endsWith(close));
    if (end < lines.length - 1 && BLANK.test(lines[end])) return null; // at the end of the text it may still be arriving
  }
  return { kind: "formula", text: lines.slice(at, end + 1).join("\n").trim(), end: end + 1 };
}

function readHeading(lines, at) {
  const found = HEADING.exec(lines[at]);
  return found && { kind: "heading", level: found[1].length, text: found[2] || "", end: at + 1 };
}

function readRule(lines, at) {
  return RULE.test(lines[at]) ? { kind: "rule", end: at + 1 } : null;
}

function readQuote(lines, at) {
  let end = at;
  while (end < lines.length && QUOTE.test(lines[end])) end += 1;
  return end > at ? { kind: "quote", lines: lines.slice(at, end).map((line) => line.replace(QUOTE, "")), end } : null;
}

function readList(lines, at) {
  const first = ITEM.exec(lines[at]);
  if (!first) return null;
  const ordered = /\d/.test(first[2]);
  const mark = first[2].at(-1); // other signs begin another list
  const items = [];
  let end = at;
  while (end < lines.length) {
    const item = ITEM.exec(lines[end]);
    if (!item || item[2].at(-1) !== mark || RULE.test(lines[end])) break;
    const indent = Math.min(item[0].length, item[1].length + item[2].length + 4);
    const inner = [lines[end].slice(item[0].length)];
    end += 1;
    while (end < lines.length) {
      const line = lines[end];
      const inside = line.startsWith(" ".repeat(Math.max(2, indent))) || line.startsWith("\t");
      if (BLANK.test(line)) {
        // A blank line belongs to the item if what follows it does.
        const next = lines.slice(end + 1, end + 3).find((other) => !BLANK.test(other));
        if (next === undefined || !(next.startsWith(" ".repeat(Math.max(2, indent))) || next.startsWith("\t"))) break;
        inner.push("");
      } else if (inside) inner.push(line.replace(new RegExp(`^(?:\\t| {1,${Math.max(2, indent)}})`), ""));
      else if (ITEM.test(line) || isBreak(line)) break;
      else inner.push(line.trimStart());
      end += 1;
    }
    items.push(inner);
    let next = end;
    while (next < lines.length && BLANK.test(lines[next])) next += 1;
    if (next < lines.length && next - end <= 2 && ITEM.test(lines[next])) end = next;
  }
  return { kind: "list", ordered, first: ordered ? parseInt(first[2], 10) : 1, items, end };
}

function readTable(lines, at) {
  if (!lines[at].includes("|") || at + 1 >= lines.length || !TABLE_LINE.test(lines[at + 1])) return null;
  const head = cells(lines[at]);
  const rule = cells(lines[at + 1]);
  if (head.length !== rule.length) return null;
  let end = at + 2;
  while (end < lines.length && lines[end].includes("|") && !BLANK.test(lines[end])) end += 1;
  const align = rule.map((cell) => (/^:.*:$/.test(cell) ? "center" : cell.endsWith(":") ? "right" : cell.startsWith(":") ? "left" : null));
  const rows = lines.slice(at + 2, end).map((line) => cells(line).slice(0, head.length));
  return { kind: "table", head, align, rows, end };
}

function cells(line) {
  return line
    .trim()
    .replace(/^\|/, "")
    .replace(/(?<!\\)\|$/, "")
    .split(/(?<!\\)\|/)
    .map((cell) => cell.trim().replaceAll("\\|", "|"));
}

/** The text of a footnote, or the address that links in the text name. */
function readDefinition(lines, at) {
  const found = DEFINITION.exec(lines[at]);
  if (!found) return null;
  const [, isNote, id, rest] = found;
  return isNote ? { kind: "footnote", id, text: rest, end: at + 1 } : { kind: "definition", id, text: rest, end: at + 1 };
}

function readParagraph(lines, at) {
  let end = at + 1;
  while (end < lines.length && !BLANK.test(lines[end]) && !isBreak(lines[end]) && !readTable(lines, end)) end += 1;
  const text = lines.slice(at, end).join("\n");
  // A line of signs below a text makes it a heading; one of dashes alone is read as a rule already, and ends the paragraph here.
  const under = /^ {0,3}(=+|-{2,})[ \t]*$/.exec(lines[end] ?? "");
  if (under) return { kind: "heading", level: under[1][0] === "=" ? 1 : 2, text, end: end + 1 };
  return { kind: "paragraph", text, end };
}

// The address of a reference stands after a blank line: in a paragraph it is text, and never hidden.
const isBreak = (line) => (DEFINITION.test(line) && NOTE.test(line.trimStart())) || FENCE.test(line) || /^ {0,3}(?:=+|\$\$.*|\\\[.*)[ \t]*$/.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) || /^ {0,3}(?:[-*+]|1[.)])[ \t]+\S/.test(line);

const VIEWS = {
  paragraph: (block, depth) => el("p", { dir: "auto" }, inline(block.text, depth)),
  // The page has headings of its own; those of an answer stand below them, and none skips a level, whatever its marks say.
  heading: (block, depth, outline) => el(`h${placed(block.level, outline)}`, { dir: "auto" }, inline(block.text, depth)),
  rule: () => el("hr"),
  footnote: (block, depth) => el("p", { class: "footnote", dir: "auto" }, el("sup", {}, shown(block.id)), " ", inline(block.text, depth)),
  // It is hidden as soon as something refers to it; until then nothing that was said is left out.
  definition: (block) => {
    const href = /^<?([^\s<>]{1,2000})>?(?:[ \t]+(?:"[^"]*"|'[^']*'|\([^)]*\)))?[ \t]*$/.exec(block.text)?.[1] ?? "";
    return el("p", { class: "definition", "data-name": named(block.id), "data-href": isSafe(href) ? href : null }, shown(`[${block.id}]: `), inline(block.text));
  },
  quote: (block, depth) => el("blockquote", { dir: direction(block.lines) }, views(block.lines, depth + 1)),
  code: codeView,
  formula: (block) => {
    const made = /^(?:\$\$[^]+\$\$|\\\[[^]+\\\])$/.test(block.text) && formula(block.text.slice(2, -2), true);
    if (made) return el("div", { class: "math", tabindex: "0", role: "group", "aria-label": "Formula", title: plain(block.text) }, made);
    return el("pre", { class: "math", tabindex: "0", "aria-label": "Formula in TeX" }, shown(block.text));
  },
  list: (block, depth) =>
    el(block.ordered ? "ol" : "ul", { dir: direction(block.items.flat()), start: block.ordered && block.first !== 1 ? block.first : null }, block.items.map((item) => itemView(item, depth))),
  table: (block, depth) =>
    el(
      "div",
      { class: "table", dir: direction(block.head), tabindex: "0", role: "group", "aria-label": "Table" },
      el(
        "table",
        {},
        el("thead", {}, el("tr", {}, block.head.map((cell, i) => el("th", { class: block.align[i], scope: "col" }, inline(cell, depth))))),
        el("tbody", {}, block.rows.map((row) => el("tr", {}, row.map((cell, i) => el("td", { class: block.align[i], dir: "auto" }, inline(cell, depth)))))),
      ),
    ),
};

// What holds other blocks stands on the side on which its first letter begins to be read.
const RTL = /^\P{L}*[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/u;
const direction = (lines) => (RTL.test(lines.find((line) => /\p{L}/u.test(line)) ?? "") ? "rtl" : null);

function views(lines, depth) {
  if (depth > DEPTH_MAX) return [el("p", {}, shown(lines.join("\n")))];
  const outline = [];
  return blocks(lines).map((block) => VIEWS[block.kind](block, depth, outline));
}

/** The level of a heading on the page; `outline` has the levels of those that it stands under, and gets its own. */
function placed(level, outline) {
  while (outline.at(-1) >= level) outline.pop();
  outline.push(level);
  return Math.min(6, outline.length + 2);
}

function itemView(lines, depth) {
  const task = /^\[([ xX])\][ \t]+/.exec(lines[0] || "");
  const rest = task ? [lines[0].slice(task[0].length), ...lines.slice(1)] : lines;
  const made = views(rest, depth + 1);
  // An item of one paragraph is set tight, as people write lists.
  const first = made[0]?.tagName === "P" ? [...made[0].childNodes] : made.slice(0, 1);
  const box = task && el("span", { class: "task", role: "img", "aria-label": task[1] === " " ? "not done" : "done" }, task[1] === " " ? "☐ " : "☑ ");
  return el("li", { dir: "auto" }, box, first, made.slice(1));
}

function codeView(block) {
  const text = block.lines.join("\n");
  const code = el("code", {}, codeNodes(text, block.language));
  return el(
    "figure",
    { class: "code" },
    el(
      "figcaption",
      {},
      el("span", {}, shown(block.language.slice(0, 40) || "text")),
      el("button", { type: "button", class: "link copy", onclick: (event) => copy(event.currentTarget, text) }, "Copy"),
    ),
    el("pre", { tabindex: "0", "aria-label": "Code" }, code),
  );
}

/** Puts a text where it can be pasted from, and says so on the button. */
export async function copy(target, text) {
  const words = target.textContent;
  try {
    await navigator.clipboard.writeText(text);
    target.textContent = "Copied";
  } catch {
    target.textContent = "Not allowed";
  }
  setTimeout(() => (target.textContent = words), 1500);
}

// Marks inside of a line --------------------------------------------------------------------------------------------------

const REACH = 4000; // how far a mark may be from its end: a bound on the work for text that is full of open marks
const SPECIAL = /[\\`*_~[!<h\n&$]/g;
const ESCAPED = /[!-/:-@[-`{-~]/;
const BARE_LINK = /^https?:\/\/[^\s<>"'`]+/;

/** The marks of a text as nodes. */
export function inline(text, depth = 0) {
  const nodes = [];
  let start = 0;
  let at = 0;
  const dead = {}; // how far it is known that a mark has no end: nobody looks there twice
  const flush = (end) => end > start && nodes.push(...shown(text.slice(start, end)));
  while (at < text.length) {
    SPECIAL.lastIndex = at;
    const found = depth > DEPTH_MAX ? null : SPECIAL.exec(text);
    if (!found) break;
    at = found.index;
    const mark = MARKS[text[at]](text, at, depth, dead);
    if (!mark) {
      at += 1;
      continue;
    }
    flush(at);
    nodes.push(...[mark.nodes].flat());
    at = start = mark.end;
  }
  flush(text.length);
  return nodes;
}

const ENTITIES = {
  __proto__: null,
  amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0", copy: "©", reg: "®", trade: "™", euro: "€", deg: "°", hellip: "…", ndash: "–", mdash: "—",
  middot: "·", times: "×", plusmn: "±", le: "≤", ge: "≥", ne: "≠", larr: "←", rarr: "→", uarr: "↑", darr: "↓",
}; // prettier-ignore

const MARKS = {
  "\\": (text, at, depth, dead) => {
    const close = { "(": "\\)", "[": "\\]" }[text[at + 1]];
    const formula = close ? until(text, at, close, dead) : null;
    if (formula) return formula;
    if (text[at + 1] === "\n") return { nodes: [el("br")], end: at + 2 };
    return ESCAPED.test(text[at + 1] || "") ? { nodes: [document.createTextNode(text[at + 1])], end: at + 2 } : null;
  },
  "`": (text, at) => {
    const ticks = /^`+/.exec(text.slice(at, at + 64))[0];
    const close = text.slice(at + ticks.length, at + REACH).search(new RegExp(`(?<!\`)${ticks}(?!\`)`));
    if (close < 0) return { nodes: [document.createTextNode(ticks)], end: at + ticks.length };
    const inner = text.slice(at + ticks.length, at + ticks.length + close).replace(/\n/g, " ");
    return { nodes: [el("code", {}, shown(/^ .*\S.* $/.test(inner) ? inner.slice(1, -1) : inner))], end: at + close + 2 * ticks.length };
  },
  // Money is no formula: a dollar sign opens one before a character and closes it after one, and no digit follows.
  $: (text, at, depth, dead) => {
    if (text[at + 1] === "$") return until(text, at, "$$", dead);
    const found = /^\$(?![\s$])[^$\n]{0,1000}?(?<![\s\\])\$(?!\d)/.exec(text.slice(at, at + 1010));
    return found && FORMULA.test(found[0].slice(1, -1)) ? formulaView(found[0], at) : null;
  },
  "*": emphasis,
  _: emphasis,
  "~": (text, at, depth, dead) => paired(text, at, "~~", "del", { depth, dead }),
  "[": (text, at, depth, dead) => link(text, at, depth, dead) ?? reference(text, at, depth, dead),
  "!": (text, at, depth, dead) => (text[at + 1] === "[" ? picture(text, at, dead) : null),
  "<": (text, at) => {
    const near = text.slice(at, at + 2048);
    const line = /^<br ?\/?>/i.exec(near);
    if (line) return { nodes: [el("br")], end: at + line[0].length };
    const found = /^<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>/.exec(near) ?? /^<([\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8})>/.exec(near);
    return found && { nodes: [anchor(found[1].includes(":") ? found[1] : `mailto:${found[1]}`, shown(found[1]))], end: at + found[0].length };
  },
  h: (text, at) => {
    if (at > 0 && /[\w/]/.test(text[at - 1])) return null;
    const found = BARE_LINK.exec(text.slice(at, at + 2048));
    if (!found) return null;
    const href = found[0].replace(/[.,;:!?)\]]+$/, "");
    return { nodes: [anchor(href, shown(href))], end: at + href.length };
  },
  "\n": (text, at) => ({ nodes: [/ {2}$/.test(text.slice(Math.max(0, at - 2), at)) ? el("br") : document.createTextNode("\n")], end: at + 1 }),
  "&": (text, at) => {
    const found = /^&(?:(\w{2,6})|#(\d{1,7}));/.exec(text.slice(at, at + 10));
    const char = found && (found[1] ? ENTITIES[found[1]] : found[2] < 0x110000 && String.fromCodePoint(found[2]));
    return char ? { nodes: shown(char), end: at + found[0].length } : null;
  },
};

// Brackets that were escaped in a sentence hold words; formulas hold signs, a single letter, or one of something.
const FORMULA = /[\\^_={}<>+*/|]|^\s*(?:[a-zA-Z\d]{1,2}|[a-zA-Z]'*\([\w ,']{1,30}\))\s*$/;

/** A formula from its first sign to `close`, as it was written. */
function until(text, at, close, dead) {
  if (at < (dead[close] ?? 0)) return null;
  const end = text.slice(at + 2, at + REACH).indexOf(close);
  if (end > 0 && FORMULA.test(text.slice(at + 2, at + 2 + end))) return formulaView(text.slice(at, at + 2 + end + close.length), at);
  if (end < 0) dead[close] = Math.min(text.length, at + REACH);
  return null;
}

/** A formula as a drawing, or as it was written if it has something that is not known here. */
function formulaView(source, at) {
  const marks = /^\$(?!\$)/.test(source) ? 1 : 2;
  const made = formula(source.slice(marks, -marks), source.startsWith("$$") || source.startsWith("\\["));
  const node = made ? el("span", { class: "math", title: plain(source) }, made) : el("code", { class: "math", title: "Formula in TeX" }, shown(source));
  return { nodes: [node], end: at + source.length };
}

function emphasis(text, at, depth, dead) {
  const mark = text[at];
  if (mark === "_" && at > 0 && /\w/.test(text[at - 1])) return null;
  return (
    (text.startsWith(mark.repeat(3), at) && paired(text, at, mark.repeat(3), "strong", { depth, dead, inside: "em" })) ||
    (text.startsWith(mark.repeat(2), at) && paired(text, at, mark.repeat(2), "strong", { depth, dead })) ||
    paired(text, at, mark, "em", { depth, dead })
  );
}

function paired(text, at, mark, tag, { depth, dead, inside = null }) {
  if (!text.startsWith(mark, at)) return null;
  const from = at + mark.length;
  if (/^\s/.test(text[from] || " ")) return null;
  const reach = Math.min(text.length, from + REACH);
  let close = Math.max(from, dead[mark] ?? 0);
  while ((close = text.indexOf(mark, close)) >= 0 && close < reach) {
    const after = text[close + mark.length] || "";
    const isEnd = !/\s/.test(text[close - 1]) && text[close - 1] !== "\\" && !(mark[0] === "_" && /\w/.test(after));
    if (close > from && isEnd && !(mark.length === 1 && (after === mark || text[close - 1] === mark))) {
      const nodes = inline(text.slice(from, close), depth + 1);
      return { nodes: [el(tag, {}, inside ? el(inside, {}, nodes) : nodes)], end: close + mark.length };
    }
    close += 1;
  }
  dead[mark] = reach;
  return null;
}

function target(text, at) {
  // From the "(" on: an address without spaces, and a title that is left out.
  const found = /^\(\s*<?((?:[^\s()<>]|\([^\s()<>]*\)){0,2000})>?(?:\s+(?:"[^"\n]*"|'[^'\n]*'))?\s*\)/.exec(text.slice(at, at + 2400));
  return found && { href: found[1], end: at + found[0].length };
}

function closing(text, at, dead) {
  // The bracket that closes the one at `at`.
  let open = 0;
  const next = (dead.bracket ?? -1) >= at ? dead.bracket : (dead.bracket = text.indexOf("]", at));
  if (next < 0) dead.bracket = Infinity;
  const reach = Math.min(text.length, at + REACH);
  if (next < 0 || next >= reach) return -1;
  for (let i = at; i < reach; i += 1) {
    if (text[i] === "\\") i += 1;
    else if (text[i] === "[" && (open += 1) > DEPTH_MAX) return -1;
    else if (text[i] === "]" && (open -= 1) === 0) return i;
  }
  return -1;
}

const named = (id) => id.trim().replace(/\s+/g, " ").toLowerCase();

/** `[^1]` refers to a footnote; `[words][name]` and `[name]` to an address that is defined somewhere in the text. */
function reference(text, at, depth, dead) {
  const note = NOTE.exec(text.slice(at, at + 40));
  if (note) return { nodes: [el("sup", { class: "noted" }, note[1])], end: at + note[0].length };
  const close = closing(text, at, dead);
  const name = close > 0 && /^\[([^\]\[\n]{0,100})\]/.exec(text.slice(close + 1, close + 110));
  if (!name) return alone(text, at, depth);
  const inside = text.slice(at + 1, close);
  const words = el("span", {}, inline(inside, depth + 1));
  for (const inner of words.querySelectorAll("a")) inner.replaceWith(...inner.childNodes);
  return { nodes: [el("span", { class: "ref", "data-name": named(name[1] || inside) }, "[", words, "]", shown(name[0]))], end: close + 1 + name[0].length };
}

/** A name in brackets: a number keeps them as a link, because it stands beside what it is the source of. */
function alone(text, at, depth) {
  const found = /^\[((?!\^)[^\]\[\n]{1,100})\]/.exec(text.slice(at, at + 102));
  if (!found) return null;
  const [open, words, close] = /^\d+$/.test(found[1]) ? ["", found[0], ""] : ["[", inline(found[1], depth + 1), "]"];
  return { nodes: [el("span", { class: "ref", "data-name": named(found[1]) }, open, el("span", {}, words), close)], end: at + found[0].length };
}

const written = new WeakMap(); // a link that was made of a reference -> what stands in the text

/** Makes links of what refers to addresses that are known by now; an address that is still arriving may change. */
function resolve(nodes, known = null) {
  const all = (selector) => nodes.flatMap((node) => [...(node.matches?.(selector) ? [node] : []), ...(node.querySelectorAll?.(selector) ?? [])]);
  known ??= new Map(all(".definition[data-href]").map((node) => [node.dataset.name, node]).reverse());
  for (const ref of all(".ref")) {
    const origin = written.get(ref) ?? ref;
    const definition = known.get(origin.dataset.name);
    const href = definition?.dataset.href;
    if (!href && ref !== origin) ref.replaceWith(origin);
    if (!href || ref.parentElement?.closest("a")) continue; // links do not stand in one another
    definition.hidden = true;
    if (ref.getAttribute("href") === href) continue;
    const made = anchor(href, [...origin.firstElementChild.childNodes].map((node) => node.cloneNode(true)));
    made.classList.add("ref");
    written.set(made, origin);
    ref.replaceWith(made);
  }
  return known;
}

function link(text, at, depth, dead) {
  const close = closing(text, at, dead);
  const found = close > 0 && text[close + 1] === "(" && target(text, close + 1);
  if (!found) return null;
  const words = el("span", {}, inline(text.slice(at + 1, close), depth + 1));
  for (const inner of words.querySelectorAll("a")) inner.replaceWith(...inner.childNodes);
  return { nodes: linked(found.href, [words]), end: found.end };
}

function picture(text, at, dead) {
  const close = closing(text, at + 1, dead);
  const found = close > 0 && text[close + 1] === "(" && target(text, close + 1);
  if (!found) return null;
  const words = ["picture, not loaded: ", ...shown(text.slice(at + 2, close) || found.href)];
  return { nodes: linked(found.href, words), end: found.end };
}

function linked(href, words) {
  return isSafe(href) ? [anchor(href, words)] : [...words, " (", ...shown(href), ")"];
}

/** Whether an address may be a link: what a browser would make of it begins with http, https or mailto. */
export function isSafe(href) {
  if (!/^(?:https?:\/\/|mailto:)[^\s\\]/i.test(href)) return false;
  try {
    return ["http:", "https:", "mailto:"].includes(new URL(href).protocol);
  } catch {
    return false;
  }
}

function anchor(href, words) {
  if (!isSafe(href)) return el("span", {}, words);
  // Where a link leads is always seen: in its title, in the form that the browser will ask for.
  const props = { href, rel: "noopener noreferrer nofollow", target: "_blank", title: plain(new URL(href).href) };
  return el("a", props, words);
}

// While it arrives --------------------------------------------------------------------------------------------------------

/** A whole text as a list of elements. */
export function markdown(text) {
  const made = views(linesOf(text), 0);
  resolve(made);
  return made;
}

const linesOf = (text) => text.replace(/\r\n?/g, "\n").split("\n");

const EAGER = 4000; // characters of a block that are read anew with each piece of it
const GROWTH = 1 / 8; // a longer one is read again when it has grown by so much: all readings together stay linear
const SEEN = 200; // characters before a piece in which the end of a block may have begun

/** An answer that grows: `add` pieces of it, and `node` shows what there is; `end` says that it is whole. */
export class MarkdownStream {
  constructor(node, { eager = EAGER } = {}) {
    this.node = node;
    this.eager = eager;
    this.text = ""; // of the last block, and what followed it
    this.read = 0; // how much of it the elements show; the rest is shown as text at their end
    this.open = []; // its elements, which the next piece may change
    this.last = null; // the block itself
    this.outline = []; // of the headings before it
    this.names = null; // the addresses that references stand for, once there are some
  }

  add(piece) {
    this.text += piece;
    const wanted = this.read > this.eager ? this.read * (1 + GROWTH) : 0;
    if (this.last && this.text.length < wanted && !this.mayEnd(piece)) this.append(piece);
    else this.renew();
  }

  end() {
    if (this.text.length > this.read) this.renew();
  }

  /** Whether the piece seems to end the last block. A block that went on all the same is not asked again. */
  mayEnd(piece) {
    if (this.wentOn) return false;
    const near = this.text.slice(-piece.length - SEEN);
    const { kind, mark } = this.last;
    const isOver =
      kind === "code" ? new RegExp(`\\n {0,3}\\${mark[0]}{${mark.length},}[ \\t]*\\r?\\n`).test(near)
      : kind === "list" ? /\n[ \t\r]*\n[^\s\d*+-]/.test(near)
      : /\n[ \t\r]*\n/.test(near) || near.split("\n").slice(1).some(isBreak); // prettier-ignore
    this.wentOn = isOver;
    return isOver;
  }

  /** Shows a piece without reading it. */
  append(piece) {
    let place = this.open.at(-1);
    if (this.last.kind === "code") place = place.querySelector("code");
    else if (!["paragraph", "heading"].includes(this.last.kind) && !place.classList.contains("arriving")) {
      place = el("p", { class: "arriving", dir: "auto" });
      this.node.append(place);
      this.open.push(place);
    }
    place.append(...shown(piece));
  }

  /** Reads the last block again, with all that has arrived of it. */
  renew() {
    const lines = linesOf(this.text);
    const found = blocks(lines);
    const open = openBlocks(found, lines);
    const settled = found.slice(0, found.length - open);
    const rest = found.slice(found.length - open);
    for (const node of this.open) node.remove();
    const made = settled.map((block) => VIEWS[block.kind](block, 0, this.outline));
    const outline = [...this.outline];
    this.open = rest.map((block) => VIEWS[block.kind](block, 0, outline));
    this.node.append(...made, ...this.open);
    this.last = rest.at(-1) ?? null;
    if (settled.length) {
      this.text = lines.slice(rest.length ? rest[0].start : settled.at(-1).end).join("\n");
      this.wentOn = false;
    }
    this.read = this.text.length;
    const hasNames = found.some(({ kind }) => kind === "definition");
    if (hasNames) this.names = resolve([this.node]);
    else if (this.names) resolve([...made, ...this.open], this.names);
  }
}

/** How many blocks at the end more text may change. */
function openBlocks(found, lines) {
  const last = found.at(-1);
  if (!last) return 0;
  if (last.kind === "code" && last.end < lines.length) return 0; // the line that closes it is whole
  if (last.kind === "paragraph" && last.end < lines.length - 1) return 0; // so is the blank line after it
  // Signs alone on a line may yet become the line below a heading, and digits the next item of a list.
  return found.length > 1 && /^ {0,3}(?:[-=]+[ \t]*|\d{1,9})$/.test(lines.slice(last.start).join("\n")) ? 2 : 1;
}
