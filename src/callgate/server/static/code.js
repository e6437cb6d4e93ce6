// Code in colours: comments, strings, numbers and the words of a language, read by one pass over the text. What a language has
// beyond that stays as it is; a text that is too long, or in a language that is not in the table, stays plain.

import { el } from "./dom.js";
import { shown } from "./text.js";

const LONGEST = 60_000;
const MOST = 6_000; // nodes in one text

// Whatever is not closed goes on to the end: an expression that cannot fail late is never tried twice over the same text.
const END = "(?![^])";
const HASH = "#[^\\n]*";
const BLOCK = `/\\*[^]*?(?:\\*/|${END})`;
const SLASHES = `//[^\\n]*|${BLOCK}`;
const QUOTED = "\"(?:[^\"\\\\\\n]|\\\\.)*\"?|'(?:[^'\\\\\\n]|\\\\.)*'?";
const TRIPLE = `"""[^]*?(?:"""|${END})|'''[^]*?(?:'''|${END})|${QUOTED}`;
const BACKTICKS = `${QUOTED}|\`(?:[^\`\\\\]|\\\\[^])*\`?`;

const C_LIKE = "break case const continue default do else enum false for goto if null return static struct switch this true void while";
const WORDS = {
  python: "False None True and as assert async await break class continue def del elif else except finally for from global if import in is lambda match nonlocal not or pass raise return self try while with yield",
  javascript: `${C_LIKE} async await catch class delete export extends finally from function import in instanceof interface let new of throw try type typeof undefined var yield`,
  c: `${C_LIKE} auto bool char class delete double extern final float import include inline int interface long namespace new package private protected public short signed sizeof template throw throws try catch typedef union unsigned using virtual`,
  go: `${C_LIKE} chan defer func go import interface map nil package range select type var`,
  rust: `${C_LIKE} as async await crate dyn extern fn impl in let loop match mod move mut pub ref self Self super trait type unsafe use where`,
  sql: "add all alter and as asc between by case create delete desc distinct drop else end exists false from full group having in index inner insert into is join key left like limit not null on or order outer primary references right select set table then true union unique update values view when where with",
  shell: "case do done elif else esac exit export fi for function if in local return set then until while",
  data: "true false null yes no",
};
const NUMBER = "\\b(?:0[xXbBoO][\\da-fA-F_]+|\\d[\\d_]*(?:\\.\\d+)?(?:[eE][+-]?\\d+)?)\\b";

// Language -> comments, strings, the name of its words.
const LANGUAGES = {
  python: [HASH, TRIPLE, "python"],
  javascript: [SLASHES, BACKTICKS, "javascript"],
  c: [SLASHES, QUOTED, "c"],
  go: [SLASHES, BACKTICKS, "go"],
  rust: [SLASHES, '"(?:[^"\\\\]|\\\\[^])*"?', "rust"],
  sql: [`--[^\\n]*|${BLOCK}`, "'(?:[^']|'')*'?", "sql"],
  shell: [`(?<=^|\\s)${HASH}`, QUOTED, "shell"],
  data: [`(?<=^|\\s)${HASH}`, QUOTED, "data"],
  css: [BLOCK, QUOTED, null],
  markup: [`<!--[^]*?(?:-->|${END})`, QUOTED, null],
};
const NAMES = {
  py: "python", python: "python", python3: "python", pycon: "python", rb: "python", ruby: "python",
  js: "javascript", javascript: "javascript", jsx: "javascript", mjs: "javascript", ts: "javascript", tsx: "javascript", typescript: "javascript",
  c: "c", "c++": "c", cpp: "c", cc: "c", h: "c", cs: "c", csharp: "c", java: "c", kotlin: "c", kt: "c", php: "c", swift: "c", scala: "c", dart: "c",
  go: "go", golang: "go", rs: "rust", rust: "rust",
  sql: "sql", postgresql: "sql", sqlite: "sql",
  sh: "shell", bash: "shell", zsh: "shell", shell: "shell", console: "shell", dockerfile: "shell", make: "shell", makefile: "shell",
  json: "data", jsonc: "javascript", json5: "javascript", yaml: "data", yml: "data", toml: "data", ini: "data",
  css: "css", scss: "css", html: "markup", xml: "markup", svg: "markup", vue: "markup",
}; // prettier-ignore

const readers = new Map();

function readerOf(name) {
  if (!readers.has(name)) {
    const [comment, string, words] = LANGUAGES[name];
    const word = words ? `|(?<word>\\b(?:${WORDS[words].split(" ").join("|")})\\b)` : "";
    readers.set(name, new RegExp(`(?<comment>${comment})|(?<string>${string})|(?<number>${NUMBER})${word}`, name === "sql" ? "gi" : "gm"));
  }
  return readers.get(name);
}

/** The nodes of a piece of code: its text, with what is known of it marked. */
export function codeNodes(text, language) {
  const name = language.toLowerCase().split(/[\s{:,]/)[0];
  if (text.length > LONGEST) return shown(text);
  if (name === "diff" || name === "patch") return diffNodes(text);
  const known = Object.hasOwn(NAMES, name) ? readerOf(NAMES[name]) : null;
  if (!known) return shown(text);
  const nodes = [];
  let place = 0;
  for (const found of text.matchAll(known)) {
    const kind = Object.keys(found.groups).find((each) => found.groups[each] !== undefined);
    if (nodes.length > MOST) break;
    nodes.push(...shown(text.slice(place, found.index)), el("span", { class: `tok-${kind}` }, shown(found[0])));
    place = found.index + found[0].length;
  }
  return [...nodes, ...shown(text.slice(place))];
}

const LINES = [
  [/^(?:\+\+\+|---|diff |index |new file|deleted file|rename |similarity )/, "tok-comment"],
  [/^@@/, "tok-word"],
  [/^\+/, "tok-added"],
  [/^-/, "tok-removed"],
];

function diffNodes(text) {
  return text.split("\n").flatMap((line, at) => {
    const [, kind] = LINES.find(([begins]) => begins.test(line)) ?? [];
    return [at ? "\n" : null, kind ? el("span", { class: kind }, shown(line)) : shown(line)].flat();
  });
}
