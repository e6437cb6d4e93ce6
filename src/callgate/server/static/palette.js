// The palette: one field for everything that can be done here, and for every conversation. Ctrl+K opens it.

import { api } from "./api.js";
import { byId, el, refill } from "./dom.js";
import { ago, oneLine, shown } from "./text.js";

const SEARCH_MS = 150;
const FOUND_MAX = 8;

/** Opens it. `deeds` is a list of `{words, key, act}`; `open` takes the id of a conversation. */
export function palette(deeds, open) {
  const dialog = byId("palette");
  if (dialog.open || document.querySelector("dialog[open]")) return;
  const options = el("ul", { role: "listbox", id: "palette-list", "aria-label": "Commands and conversations" });
  const field = el("input", {
    type: "text",
    id: "palette-input",
    role: "combobox",
    autocomplete: "off",
    spellcheck: "false",
    placeholder: "Type what you want to do, or words of a conversation",
    "aria-expanded": "true",
    "aria-controls": "palette-list",
    "aria-labelledby": "palette-title",
  });
  let chosen = 0;
  let rows = [];
  let asked = 0;
  let timer = 0;

  const run = (row) => {
    dialog.close();
    row?.act();
  };
  const mark = () => {
    [...options.children].forEach((node, at) => {
      node.setAttribute("aria-selected", String(at === chosen));
      if (at === chosen) node.scrollIntoView({ block: "nearest" });
    });
    field.setAttribute("aria-activedescendant", options.children[chosen]?.id ?? "");
  };
  const draw = (found) => {
    const wanted = field.value.trim().toLowerCase();
    rows = [...deeds.filter(({ words }) => isLike(words.toLowerCase(), wanted)), ...found];
    chosen = 0;
    refill(
      options,
      rows.map((row, at) =>
        el("li", { role: "option", id: `palette-${at}`, onclick: () => run(row) }, el("span", {}, shown(row.words)), el("span", { class: "quiet" }, row.key ? el("kbd", {}, row.key) : shown(row.more ?? ""))),
      ),
      !rows.length && el("li", { class: "quiet", role: "option", "aria-disabled": "true" }, "No matches."),
    );
    mark();
  };
  const search = async () => {
    const ticket = (asked += 1);
    const { sessions = [] } = await api.sessions(field.value.trim()).catch(() => ({}));
    if (ticket !== asked || !dialog.open) return;
    draw(sessions.slice(0, FOUND_MAX).map((session) => ({ words: oneLine(session.title || "Untitled", 80), more: session.match ? oneLine(session.match, 80) : ago(session.updated), act: () => open(session.id) })));
  };
  field.addEventListener("input", () => {
    draw([]);
    clearTimeout(timer);
    timer = setTimeout(search, SEARCH_MS);
  });
  field.addEventListener("keydown", (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by && rows.length) {
      chosen = (chosen + by + rows.length) % rows.length;
      mark();
    } else if (event.key === "Enter" && !event.isComposing) run(rows[chosen]);
    else return;
    event.preventDefault();
  });
  refill(dialog, el("h2", { id: "palette-title", class: "unseen" }, "Commands and conversations"), field, options);
  dialog.showModal();
  draw([]);
  search();
  field.focus();
}

/** Whether all letters of `wanted` come in `words`, in their order. */
function isLike(words, wanted) {
  let at = 0;
  for (const letter of wanted) {
    at = words.indexOf(letter, at) + 1;
    if (!at) return false;
  }
  return true;
}
