// Text of others, made fit to be read: what could hide in it, reorder it or steer it is spelled out, as in <U+202E>.
// Letters of all scripts stay as they are. Besides: how numbers, times and sizes are written on this page.

import { el } from "./dom.js";

const COMBINING = "\\u0300-\\u036f\\u0483-\\u0487\\u0591-\\u05bd\\u0610-\\u061a\\u064b-\\u065f\\u1ab0-\\u1aff\\u1dc0-\\u1dff\\u20d0-\\u20dc\\u20e1\\u20e3\\u20e5-\\u20f0\\ufe20-\\ufe2f";
// Scripts whose spelling needs joiners, and emoji, which are put together by them. In Latin text a joiner only hides something.
const SCRIPTS = ["Arabic", "Bengali", "Devanagari", "Gujarati", "Gurmukhi", "Kannada", "Khmer", "Malayalam", "Mongolian", "Myanmar", "Oriya", "Sinhala", "Syriac", "Tamil", "Telugu"];
const JOINED = `[${SCRIPTS.map((name) => `\\p{Script=${name}}`).join("")}\\p{Extended_Pictographic}\\p{Emoji_Modifier}\\ufe0f\\u2640\\u2642]`;
const UNSAFE = new RegExp(
  "[" +
    "\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f" + // control characters but newline and tab
    "\\u00ad\\u034f\\u061c\\u180b-\\u180f\\u200b\\u200e\\u200f\\u202a-\\u202e\\u2060-\\u206f\\ufeff" + // no width, another direction
    "\\u1680\\u2000-\\u200a\\u2028\\u2029\\u205f\\u2800\\u3164\\u115f\\u1160\\uffa0" + // spaces that are none, ends of lines
    "\\u17b4\\u17b5\\ufff9-\\ufffb\\ufffe\\uffff\\u{1d173}-\\u{1d17a}" + // invisible marks, and what is no character
    "\\ufe00-\\ufe0d\\u{e0000}-\\u{e0fff}" + // tags and variants: text inside of text that nobody sees
    "\\u{d800}-\\u{dfff}\\ue000-\\uf8ff\\u{f0000}-\\u{10ffff}" + // halves of pairs, and what means something else everywhere
    "]" +
    `|(?<!${JOINED})[\\u200c\\u200d]|[\\u200c\\u200d](?!${JOINED})` + // joiners, but between letters that need them, or emoji
    "|(?<![\\u00a9\\u00ae\\u203c-\\u3299\\u{1f000}-\\u{1faff}#*0-9])[\\ufe0e\\ufe0f]" + // how a sign is drawn, said twice
    `|(?<=[${COMBINING}]{4})[${COMBINING}]`, // more marks than this over one letter grow over the lines around it
  "gu",
);

// A carriage return before a newline is how some systems end their lines: it hides nothing.
const ENDS = /\r\n/g;

const spelled = (char) => `<U+${char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}>`;

/** The text as a string in which everything unsafe is spelled out. */
export const plain = (text) => String(text).replace(ENDS, "\n").replace(UNSAFE, spelled);

/** The text on one line, cut to a length: for titles and labels. */
export function oneLine(text, max = 200) {
  const line = plain(String(text).replace(/\s+/g, " ").trim());
  return line.length > max ? `${line.slice(0, max)}…` : line;
}

/** The text as nodes; what is unsafe in it stands out as a mark of its own. */
export function shown(text) {
  text = String(text).replace(ENDS, "\n");
  const nodes = [];
  let place = 0;
  for (const found of text.matchAll(UNSAFE)) {
    if (found.index > place) nodes.push(document.createTextNode(text.slice(place, found.index)));
    nodes.push(el("span", { class: "ctl", title: "a character that does not show" }, spelled(found[0])));
    place = found.index + found[0].length;
  }
  if (place < text.length) nodes.push(document.createTextNode(text.slice(place)));
  return nodes;
}

/** Whether a text holds more than plain ASCII: then two texts that look alike may differ. */
export const isForeign = (text) => /[^\n\t\x20-\x7e]/.test(text);

/** JSON in which every character outside ASCII is escaped. */
export const asciiJson = (value, indent = 0) =>
  JSON.stringify(value, null, indent).replace(/[\x7f-\uffff]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);

const numbers = new Intl.NumberFormat("en");
/** 1234567 as 1,234,567. */
export const count = (value) => numbers.format(value || 0);

/** "1 call", "2 calls". */
export const many = (value, one, more = `${one}s`) => `${count(value)} ${value === 1 ? one : more}`;

/** Seconds in the form that a person reads at a glance. */
export function duration(seconds) {
  if (!(seconds >= 0)) return "";
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  return whole < 3600
    ? `${Math.floor(whole / 60)} min ${whole % 60} s`
    : `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

/** How much a text or a file is. */
export function size(bytes) {
  if (bytes < 1024) return many(bytes, "byte");
  return bytes < 1048576 ? `${(bytes / 1024).toFixed(1)} kB` : `${(bytes / 1048576).toFixed(1)} MB`;
}

/** What a run cost, in US dollars. */
export const cost = (value) => `$${value >= 0.01 || value === 0 ? value.toFixed(2) : value.toPrecision(2)}`;

/** A time as a date: seconds since 1970, or a text that says it. */
export const dateOf = (time) => new Date(typeof time === "number" ? time * 1000 : time);

/** "just now", "5 min ago", "14:05", "3 May". */
export function ago(time, now = Date.now()) {
  const then = dateOf(time);
  const seconds = (now - then.getTime()) / 1000;
  if (Number.isNaN(seconds)) return "";
  if (seconds < 60) return "just now";
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (then.toDateString() === new Date(now).toDateString()) {
    return then.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  }
  return then.toLocaleDateString([], { day: "numeric", month: "short" });
}

/** The first 16 digits of a text's SHA-256; nothing where the browser does not offer it (a page without a secure origin). */
export async function digest(text) {
  if (!globalThis.crypto?.subtle) return "";
  const bytes = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  return [...new Uint8Array(bytes).slice(0, 8)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
