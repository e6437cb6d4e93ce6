// Elements out of words. Text becomes text nodes and nothing else: no function here, or anywhere on this page, makes HTML of a
// string. What is shown of others goes through `shown` of text.js besides.

const SVG = "http://www.w3.org/2000/svg";
const MATHML = "http://www.w3.org/1998/Math/MathML";

/** An element with properties and children; children are nodes, texts, arrays of them, or nothing. */
export function el(tag, props = {}, ...children) {
  return filled(document.createElement(tag), props, children);
}

/** The same for a picture. */
export function svg(tag, props = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), props, children);
}

/** The same for a formula. */
export function mathml(tag, props = {}, ...children) {
  return filled(document.createElementNS(MATHML, tag), props, children);
}

function filled(node, props, children) {
  // Children first: a browser looks for the direction of all text anew with each child of what has `dir="auto"` already.
  node.append(...children.flat(3).filter((child) => child !== undefined && child !== null && child !== false));
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  return node;
}

/** The element of this page with that id, which index.html promises. */
export const byId = (id) => document.getElementById(id);

let last = 0;
/** An id that nothing else on the page has. */
export const freshId = (prefix) => `${prefix}-${(last += 1)}`;

// Shapes of 16 by 16, drawn with one stroke each; the word beside an icon says what it means, so all are hidden from readers.
const ICONS = {
  proposed: "M8 4v4.5l3 1.5M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8z",
  awaiting: "M5.5 3.5v9M10.5 3.5v9",
  started: "M5 3.2v9.6L12.5 8z",
  finished: "M3 8.5l3.3 3.3L13 4.8",
  failed: "M4 4l8 8M12 4l-8 8",
  denied: "M3.8 3.8l8.4 8.4M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8z",
  timed_out: "M4.5 2h7M4.5 14h7M5 2c0 4 6 8 6 12M11 2c0 4-6 8-6 12",
  cancelled: "M4 4h8v8H4z",
  unknown: "M5.6 6a2.4 2.4 0 1 1 3.4 2.2c-.7.4-1 .8-1 1.6M8 12.6v.2",
  menu: "M2.5 4.5h11M2.5 8h11M2.5 11.5h11",
  panel: "M2 3h12v10H2zM10 3v10",
  close: "M4 4l8 8M12 4l-8 8",
  plus: "M8 3v10M3 8h10",
  send: "M8 13V3.5M4 7l4-3.7L12 7",
  stop: "M4.5 4.5h7v7h-7z",
  sun: "M8 5.2a2.8 2.8 0 1 0 0 5.6 2.8 2.8 0 0 0 0-5.6zM8 1v1.6M8 13.4V15M1 8h1.6M13.4 8H15M3 3l1.2 1.2M11.8 11.8L13 13M3 13l1.2-1.2M11.8 4.2L13 3",
  moon: "M13 9.6A5.6 5.6 0 0 1 6.4 3 5.6 5.6 0 1 0 13 9.6z",
  auto: "M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8zM8 1.8v12.4M8 5h4.8M8 8h6M8 11h4.8",
  fork: "M4.5 2.5v11M4.5 9.5c0-3 7-1.5 7-5M11.5 4.5l-2-2M11.5 4.5l2-2",
  again: "M12.8 6.5A5 5 0 1 0 13 9M13 3v3.5H9.500",
  undo: "M5.5 3L2.5 6l3 3M3 6h6.2a3.6 3.6 0 0 1 0 7.2H6",
  clock: "M8 4.5V8l2.3 1.5M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8z",
  edit: "M3 13l.6-2.8L10.5 3.3l2.2 2.2-6.9 6.9z",
  trash: "M3 4.5h10M6.5 4.5V2.8h3v1.7M4.3 4.5l.7 8.7h6l.7-8.7",
  more: "M3.5 8h.1M8 8h.1M12.5 8h.1",
  warning: "M8 2.2l6.3 11.3H1.7zM8 6.5v3.3M8 11.6v.2",
  info: "M8 7.2v4M8 4.8v.2M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8z",
  attach: "M12.5 7.5L7.600 12.400a3 3 0 0 1-4.200-4.200l5.600-5.600a2 2 0 0 1 2.800 2.800L6.300 10.900a1 1 0 0 1-1.400-1.400l4.600-4.600",
  file: "M4 1.8h5.200L12.500 5v9.200H4zM9 1.800V5.200h3.500",
  sliders: "M2 4.5h7M12 4.5h2M2 11.5h2M7 11.5h7M9 3v3h3V3zM4 10v3h3v-3z",
  star: "M8 2l1.800 3.900 4.200.500-3.100 2.900.800 4.200L8 11.400 4.300 13.500l.800-4.200L2 6.400l4.200-.5z",
  box: "M2.500 3h11v3h-11zM3.500 6v7.500h9V6M6.500 8.500h3",
  save: "M8 2v8M4.8 7L8 10.200 11.200 7M3 13.500h10",
  copy: "M5.5 5.5h7.7v7.7H5.5zM3 10.5V2.8h7.7",
  tool: "M10.2 2.4a3.3 3.3 0 0 0-3 4.7L2.6 11.700a1.2 1.2 0 0 0 1.7 1.700l4.600-4.600a3.300 3.300 0 0 0 4.700-3l-2.100 1.500-1.900-1.900z",
};

/** A small picture by name. */
export function icon(name) {
  return svg(
    "svg",
    { viewBox: "0 0 16 16", class: "icon", "aria-hidden": "true", focusable: "false" },
    svg("path", { d: ICONS[name] || ICONS.unknown }),
  );
}

/** A button with a picture, words, and what it does. */
export function button(words, props = {}, picture = null) {
  return el("button", { type: "button", ...props }, picture && icon(picture), el("span", {}, words));
}

/** A button that shows a picture only; its words are its label. */
export function iconButton(words, picture, props = {}) {
  return el("button", { type: "button", class: "bare", "aria-label": words, title: words, ...props }, icon(picture));
}

/** Everything out, these in. */
export function refill(node, ...children) {
  node.replaceChildren(...children.flat(3).filter((child) => child !== undefined && child !== null && child !== false));
  return node;
}
