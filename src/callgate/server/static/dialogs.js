// Questions that stand before the page: yes or no, the token, and the help. Each gives the focus back to where it was.

import { button, byId, el, refill } from "./dom.js";

export const KEYS = [
  ["Enter", "send the message (Shift+Enter: line break)"],
  ["Esc", "leave the message field; close what is open"],
  ["i or /", "go to the message field"],
  ["n", "go to the next call that needs approval"],
  ["y a e d", "approve, always, edit, deny the focused call"],
  ["s", "stop the run"],
  ["j k", "go to the next and the previous exchange"],
  ["o", "expand or collapse the calls of the focused exchange"],
  ["u", "undo the last exchange"],
  ["t", "timeline, or tools"],
  ["Ctrl+K", "commands and conversations"],
  ["c", "new conversation"],
  ["f", "search conversations (then ↓ ↑ and Enter)"],
  ["l", "light, dark, or as the system says"],
  ["?", "this help"],
];

function show(dialog, ...children) {
  const before = document.activeElement;
  refill(dialog, children);
  if (!dialog.open) dialog.showModal();
  return new Promise((resolve) =>
    dialog.addEventListener(
      "close",
      () => {
        if (before?.isConnected) before.focus();
        resolve(dialog.returnValue);
      },
      { once: true },
    ),
  );
}

/** Asks; whether the answer was yes. */
export async function confirm(title, text, yes) {
  const dialog = byId("confirm");
  dialog.returnValue = "";
  const close = (value) => () => dialog.close(value);
  const answer = await show(
    dialog,
    el("h2", { id: "confirm-title" }, title),
    [text].flat().map((line) => el("p", {}, line)),
    el("div", { class: "answers" }, button("Cancel", { onclick: close("no"), autofocus: true }), button(yes, { class: "primary", onclick: close("yes") })),
  );
  return answer === "yes";
}

/** Asks for a line of text, with one to begin with; nothing if there is none. */
export async function askText(title, label, { value = "", most = 200, yes = "OK" } = {}) {
  const dialog = byId("confirm");
  dialog.returnValue = "";
  const input = el("input", { type: "text", id: "text-input", autocomplete: "off", spellcheck: "false", maxlength: String(most), autofocus: true });
  input.value = value;
  const form = el(
    "form",
    {
      onsubmit: (event) => {
        event.preventDefault();
        dialog.close("given");
      },
    },
    el("h2", { id: "confirm-title" }, title),
    el("label", { for: "text-input" }, label),
    input,
    el("div", { class: "answers" }, button("Cancel", { onclick: () => dialog.close("") }), el("button", { type: "submit", class: "primary" }, yes)),
  );
  return (await show(dialog, form)) === "given" ? input.value.trim() : "";
}

let asking = null;
/** Asks for the token; the same question for everybody who needs it at once. */
export function askToken(wasWrong) {
  asking ??= askOnce(wasWrong).finally(() => (asking = null));
  return asking;
}

async function askOnce(wasWrong) {
  const dialog = byId("token");
  dialog.returnValue = "";
  const input = el("input", { type: "password", id: "token-input", autocomplete: "off", autofocus: true, "aria-describedby": "token-why" });
  const form = el(
    "form",
    {
      onsubmit: (event) => {
        event.preventDefault();
        dialog.close("given");
      },
    },
    el("h2", { id: "token-title" }, "This service requires a token"),
    el("p", { id: "token-why" }, wasWrong ? "That token is wrong. " : "", "Enter the token that the service was started with. It is kept in this tab until you close it."),
    el("label", { for: "token-input" }, "Token"),
    input,
    el("div", { class: "answers" }, el("button", { type: "submit", class: "primary" }, "Continue")),
  );
  const answer = await show(dialog, form);
  return answer === "given" ? input.value.trim() : "";
}

/** Keys, and whether single keys work at all. */
export function help(settings) {
  const dialog = byId("help");
  const box = el("input", { type: "checkbox", id: "keys-on" });
  box.checked = settings.keys;
  box.addEventListener("change", () => (settings.keys = box.checked));
  return show(
    dialog,
    el("h2", { id: "help-title" }, "Keys"),
    el("dl", { class: "keys" }, KEYS.map(([keys, words]) => [el("dt", {}, keys.split(" ").map((key) => (key === "or" ? " or " : el("kbd", {}, key)))), el("dd", {}, words)])),
    el("p", { class: "check" }, box, el("label", { for: "keys-on" }, "Enable single-key shortcuts when no field is focused")),
    el("div", { class: "answers" }, button("Close", { autofocus: true, onclick: () => dialog.close() })),
  );
}
