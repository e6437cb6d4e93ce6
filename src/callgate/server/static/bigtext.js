// Texts of any length, and media. A long text shows its head and says how much is left; all of it is put in by pieces, each of
// which the browser lays out only while it is on the screen, so that a megabyte does not hold up the page.

import { el, button } from "./dom.js";
import { copy } from "./markdown.js";
import { count, plain, shown, size } from "./text.js";

const HEAD = 3000;
const PIECE = 12000;
const PIECES_A_FRAME = 3;

/** A text that keeps its lines. */
export function textView(text, label) {
  if (text.length <= HEAD + 500) return el("pre", { class: "text", tabindex: "0", "aria-label": label }, shown(text));
  const box = el("pre", { class: "text long", tabindex: "0", "aria-label": label }, shown(headOf(text)));
  const more = button(`Show all ${count(text.length)} characters`, { class: "link more" });
  more.addEventListener("click", () => {
    more.remove();
    fill(box, text);
    box.focus({ preventScroll: true });
  });
  return el("div", { class: "textbox" }, box, more);
}

const headOf = (text) => {
  const end = text.lastIndexOf("\n", HEAD);
  return text.slice(0, end > HEAD / 2 ? end : HEAD);
};

function fill(box, text) {
  let at = 0;
  box.replaceChildren();
  box.classList.add("whole");
  const step = () => {
    for (let made = 0; made < PIECES_A_FRAME && at < text.length; made += 1) {
      const newline = text.lastIndexOf("\n", at + PIECE);
      const isWhole = at + PIECE >= text.length;
      const end = isWhole ? text.length : newline > at + PIECE / 2 ? newline + 1 : at + PIECE;
      // A piece that ends inside of a line shows a sign, since it looks like the end of one.
      const isCut = !isWhole && text[end - 1] !== "\n";
      box.append(el("span", { class: isCut ? "piece cut" : "piece" }, shown(text.slice(at, end).replace(/\r?\n$/, ""))));
      at = end;
    }
    if (at < text.length) requestAnimationFrame(step);
  };
  step();
}

/** Any JSON value as a text to read: texts as they are, all else as indented JSON. */
export const readable = (value) => (typeof value === "string" ? value : (JSON.stringify(value, null, 2) ?? ""));

/** A value with a way to copy it. */
export function valueView(value, label) {
  const text = readable(value);
  const copied = el("button", { type: "button", class: "link copy", onclick: (event) => copy(event.currentTarget, text) }, "Copy");
  return el("div", { class: "value" }, copied, textView(text, label));
}

// Media -------------------------------------------------------------------------------------------------------------------

const PICTURES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp"]);
const SOUNDS = /^audio\/[\w.+-]{1,40}$/;

/** A part with inline data: a picture is shown, anything else can be kept as a file. Nothing is fetched. */
export function mediaView(part, maker = "tool") {
  const data = part.inlineData || part.inline_data || {};
  const kind = String(data.mimeType || data.mime_type || "application/octet-stream").toLowerCase();
  const name = plain(data.displayName || data.display_name || kind).slice(0, 120);
  let bytes;
  try {
    bytes = Uint8Array.from(atob(String(data.data || "").replaceAll("-", "+").replaceAll("_", "/")), (char) => char.charCodeAt(0));
  } catch {
    return el("p", { class: "quiet" }, "Media that is not valid base64.");
  }
  const isPicture = PICTURES.has(kind);
  // A type that a browser could run in this page's name is never given to it.
  const url = URL.createObjectURL(new Blob([bytes], { type: isPicture || SOUNDS.test(kind) ? kind : "application/octet-stream" }));
  const words = `${name}, ${size(bytes.length)}`;
  const save = el("a", { href: url, download: name.replace(/[^\w.-]+/g, "_").slice(0, 80) || "file", class: "link" }, `Save ${words}`);
  if (!isPicture) return el("p", { class: "medium" }, save);
  return el("figure", { class: "medium" }, el("img", { src: url, alt: `Image from the ${maker}: ${name}` }), el("figcaption", {}, save));
}
