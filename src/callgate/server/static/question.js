// A question of an MCP server to a person: its words, a form with one field for each thing that it wants, and three answers.
// Nothing is sent that the person has not typed or seen here.

import { button, el, freshId, icon } from "./dom.js";
import { isSafe } from "./markdown.js";
import { oneLine, plain, shown } from "./text.js";

const GUARD_MS = 600;

export class QuestionForm {
  /** `asked` is `{id, server, message, url, fields, wants_model}`; `send` takes the answer's body, or throws a sentence. */
  constructor(asked, send) {
    this.send = send;
    this.since = performance.now();
    this.fields = (asked.fields || []).map((field) => new FormField(field));
    this.status = el("p", { class: "failed-line", role: "alert" });
    const accept = asked.wants_model ? "Lend the model" : asked.url ? "I am done there" : "Send";
    const wants = asked.wants_model ? " wants the model to answer this: " : " asks you: ";
    const care = asked.wants_model ? "its answer goes to the server." : "never give a password or a key here.";
    this.buttons = [
      button(accept, { class: "primary", "data-reply": "accept", onclick: () => this.give("accept") }, "finished"),
      button("Decline", { "data-reply": "decline", onclick: () => this.give("decline") }, "denied"),
      button("Cancel", { "data-reply": "cancel", onclick: () => this.give("cancel") }),
    ];
    this.node = el(
      "div",
      { class: "ask question", role: "group", "aria-label": `Question of ${oneLine(asked.server, 80)}` },
      el("p", { class: "why" }, icon("awaiting"), el("span", {}, el("strong", {}, "The server ", shown(oneLine(asked.server, 80)), wants), care)),
      el("blockquote", {}, shown(String(asked.message || "").slice(0, asked.wants_model ? 100_000 : 10_000))),
      asked.url && isSafe(asked.url) && el("p", {}, el("a", { href: asked.url, target: "_blank", rel: "noopener noreferrer", title: plain(asked.url) }, `Open ${oneLine(asked.url, 120)}`)),
      this.fields.map((field) => field.node),
      el("div", { class: "answers" }, this.buttons),
      this.status,
    );
  }

  async give(action) {
    if (performance.now() - this.since < GUARD_MS) return;
    const content = {};
    for (const field of action === "accept" ? this.fields : []) {
      const value = field.value();
      if (value === undefined && field.required) {
        this.status.textContent = `${field.title}: this is needed.`;
        field.focus();
        return;
      }
      if (value !== undefined) Object.defineProperty(content, field.name, { value, enumerable: true });
    }
    for (const each of this.buttons) each.disabled = true;
    this.status.textContent = "";
    try {
      await this.send(action === "accept" ? { action, content } : { action });
    } catch (error) {
      for (const each of this.buttons) each.disabled = false;
      this.status.textContent = error.message;
    }
  }

  /** It was answered, here or elsewhere. */
  close(action) {
    const hadFocus = this.node.contains(document.activeElement);
    const words = { accept: "answered", decline: "declined", cancel: "not answered" }[action] ?? plain(action);
    const said = el("p", { class: "notice info", tabindex: "-1" }, icon("info"), el("span", {}, `The question was ${words}.`));
    this.node.replaceWith(said);
    if (hadFocus) said.focus();
  }
}

/** One thing that is asked for. */
class FormField {
  constructor({ name, kind, title, description, required, options = [], default: first }) {
    Object.assign(this, { name, kind, required, title: oneLine(title || name, 200) });
    const id = freshId("field");
    const about = description && el("p", { class: "quiet", id: `${id}-about` }, shown(oneLine(description, 500)));
    const common = { id, "aria-describedby": about ? `${id}-about` : null, "aria-required": required ? "true" : null };
    const makers = {
      boolean: () => el("select", common, [["", "–"], ["yes", "yes"], ["no", "no"]].map(([value, words]) => el("option", { value }, words))),
      choice: () => el("select", common, el("option", { value: "" }, "–"), options.map(([value, words]) => el("option", { value }, plain(words)))),
      choices: () => el("select", { ...common, multiple: true, size: Math.min(6, options.length) }, options.map(([value, words]) => el("option", { value }, plain(words)))),
      number: () => el("input", { ...common, type: "number", step: "any", autocomplete: "off" }),
      integer: () => el("input", { ...common, type: "number", step: "1", autocomplete: "off" }),
    };
    this.input = (makers[kind] ?? (() => el("input", { ...common, type: "text", autocomplete: "off" })))();
    if (kind === "choices") for (const option of this.input.options) option.selected = (first || []).includes(option.value);
    else if (first !== undefined && first !== null) this.input.value = kind === "boolean" ? (first ? "yes" : "no") : String(first);
    this.node = el("div", { class: "field" }, el("label", { for: id }, shown(this.title), required ? "" : el("span", { class: "quiet" }, " (optional)")), about, this.input);
  }

  focus() {
    this.input.focus();
  }

  /** The value that is typed; undefined if there is none. */
  value() {
    if (this.kind === "choices") {
      const chosen = [...this.input.selectedOptions].map(({ value }) => value);
      return chosen.length || this.required ? chosen : undefined;
    }
    if (this.input.value === "") return undefined;
    if (this.kind === "boolean") return this.input.value === "yes";
    return this.kind === "number" || this.kind === "integer" ? Number(this.input.value) : this.input.value;
  }
}
