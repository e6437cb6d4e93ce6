// Texts of any length, and media. A long text shows its head and says how much is left; all of it is put in by pieces, each of
// which the browser lays out only while it is on the screen, so that a megabyte does not hold up the page.

import { button, byId, el, refill } from "./dom.js";
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
const SAMPLE_BYTES = 2;

/** Raw samples, as Gemini makes speech, as a WAV file, which browsers and players take; any other sound as it is. */
function playable(kind, bytes) {
  const [type, ...options] = kind.split(";").map((word) => word.trim());
  if (type !== "audio/l16" && type !== "audio/pcm") return { type, pieces: [bytes] };
  const number = (name, usual) => Number(options.find((word) => word.startsWith(`${name}=`))?.slice(name.length + 1)) || usual;
  const [rate, channels] = [number("rate", 24000), number("channels", 1)];
  const head = new DataView(new ArrayBuffer(44));
  const write = (at, word) => [...word].forEach((char, index) => head.setUint8(at + index, char.charCodeAt(0)));
  write(0, "RIFF");
  head.setUint32(4, 36 + bytes.length, true);
  write(8, "WAVEfmt ");
  head.setUint32(16, 16, true);
  head.setUint16(20, 1, true);
  head.setUint16(22, channels, true);
  head.setUint32(24, rate, true);
  head.setUint32(28, rate * channels * SAMPLE_BYTES, true);
  head.setUint16(32, channels * SAMPLE_BYTES, true);
  head.setUint16(34, 8 * SAMPLE_BYTES, true);
  write(36, "data");
  head.setUint32(40, bytes.length, true);
  return { type: "audio/wav", pieces: [head, bytes] };
}

/** A part with inline data: a picture is shown, a sound can be played, anything can be kept as a file. Nothing is fetched. */
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
  const sound = kind.startsWith("audio/") ? playable(kind, bytes) : null;
  const isSound = sound !== null && SOUNDS.test(sound.type);
  // A type that a browser could run in this page's name is never given to it.
  const type = isPicture ? kind : isSound ? sound.type : "application/octet-stream";
  const url = URL.createObjectURL(new Blob(sound ? sound.pieces : [bytes], { type }));
  const words = `${name}, ${size(bytes.length)}`;
  const save = el("a", { href: url, download: fileName(name, sound), class: "link" }, `Save ${words}`);
  if (isSound) {
    const player = el("audio", { src: url, controls: true, preload: "metadata", "aria-label": `Sound from the ${maker}: ${name}` });
    const said = plain(part.audioTranscription?.text || "");
    return el("figure", { class: "medium" }, player, said && el("blockquote", {}, shown(said)), el("figcaption", {}, save));
  }
  if (!isPicture) return el("p", { class: "medium" }, save);
  const image = () => el("img", { src: url, alt: `Image from the ${maker}: ${name}` });
  const larger = el("button", { type: "button", class: "enlarge", title: "Show it larger", onclick: () => enlarge(image(), words) }, image());
  return el("figure", { class: "medium" }, larger, el("figcaption", {}, save));
}

/** The name under which media is kept; samples that became a WAV file have the ending of one. */
function fileName(name, sound) {
  const plainName = name.replace(/[^\w.-]+/g, "_").slice(0, 80) || "file";
  return sound?.type === "audio/wav" && !plainName.endsWith(".wav") ? `${plainName}.wav` : plainName;
}

/** A picture as large as the window; any click or Esc closes it. */
function enlarge(image, words) {
  const dialog = byId("picture");
  refill(dialog, el("button", { type: "button", class: "bare", "aria-label": `Close ${words}`, onclick: () => dialog.close() }, image));
  dialog.showModal();
}
