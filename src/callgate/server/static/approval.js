// A call that waits for a person: what it would do, whole, and the answers. Buttons take no press for a moment after they
// appear, so that a click or a key meant for something else decides nothing; Enter in the page decides nothing either.

import { button, el, freshId, icon, refill } from "./dom.js";
import { diffView, isDiff, showChange } from "./diff.js";
import { textView, readable } from "./bigtext.js";
import { asciiJson, count, digest, isForeign, plain, shown } from "./text.js";

const GUARD_MS = 600;
export const UNUSED = "The call was answered elsewhere; the changes that you had typed here were not used.";

/**
 * The form for one call. `asked` is `{call, reason, preview}`; the card sets `send`, which takes the answer's body and resolves
 * when the service has it, or throws a sentence.
 */
export class ApprovalForm {
  constructor(asked) {
    this.call = asked.call;
    this.send = null;
    this.since = performance.now();
    this.note = el("input", { type: "text", id: freshId("why"), maxlength: "2000", autocomplete: "off" });
    this.confirm = el("input", { type: "text", id: freshId("confirm"), maxlength: "1000", autocomplete: "off", spellcheck: "false" });
    this.confirmation = el("div", { class: "confirm", hidden: !asked.confirm });
    this.confirmation.append(
      el("label", { for: this.confirm.id }, asked.confirm ? `To confirm, type ${asciiJson(asked.confirm)} without the quotes` : "To confirm, type the name of what the call is about"),
      this.confirm,
    );
    this.status = el("p", { class: "failed-line", role: "alert" });
    this.editor = el("div", { class: "editor", hidden: true });
    // The end of the exact arguments: nothing is approved before it was on the screen.
    this.end = el("span", { class: "end", "aria-hidden": "true" }, "\u00a0");
    this.isSeen = false;
    this.buttons = [
      this.answer("Approve", "yes", "y", "primary", "finished"),
      this.answer(`Always in this session ${plain(asked.always || "")}`.trim(), "always", "a", "", "finished"),
      withKey(button("Edit", { class: "", "data-key": "e", "aria-expanded": "false", onclick: () => this.edit() }, "edit")),
      this.answer("Deny", "no", "d", "", "denied"),
    ];
    this.node = el(
      "div",
      { class: "ask", role: "group", tabindex: "-1", "aria-label": `Approval of ${asked.call.name}` },
      el("p", { class: "why" }, icon("awaiting"), el("span", {}, el("strong", {}, "This call needs approval. "), shown(asked.reason || ""))),
      this.preview(asked.preview),
      this.readable(asked.preview),
      this.exact(),
      this.end,
      this.editor,
      this.confirmation,
      el("div", { class: "answers" }, this.buttons),
      el("div", { class: "why-not" }, el("label", { for: this.note.id }, "Note that goes with your answer (optional)"), this.note),
      this.status,
    );
  }

  answer(words, value, key, kind, picture) {
    const act = () => this.give(this.note.value ? { answer: value, message: this.note.value } : { answer: value });
    return withKey(button(words, { class: kind, "data-key": key, "data-answer": value, onclick: act }, picture));
  }

  /** The arguments as a person reads them; those of a diff are in the diff. */
  readable(preview) {
    const args = Object.entries(this.call.args ?? {});
    if (!args.length || (preview && isDiff(preview))) return null;
    return el("dl", { class: "asked-args" }, args.map(([key, value]) => [el("dt", {}, shown(key)), el("dd", {}, textView(readable(value), `Argument ${plain(key)}`))]));
  }

  preview(preview) {
    if (!preview) return null;
    return isDiff(preview) ? diffView(preview) : el("div", { class: "preview" }, textView(preview, "Preview of the change"));
  }

  exact() {
    // Two names that look alike are told apart by their escapes; nothing that is approved is cut without a count and a hash.
    const text = asciiJson(this.call.args ?? {}, 2);
    const print = el("span", {}, `${count(text.length)} characters`);
    digest(text).then((hash) => hash && print.append(`, SHA-256 ${hash}`));
    const isOdd = isForeign(readable(this.call.args ?? {})) || isForeign(this.call.name);
    const view = textView(`${asciiJson(this.call.name)} ${text}`, "Exact arguments");
    this.more = view.querySelector("button.more");
    return el(
      "details",
      { class: "exact", open: true },
      el("summary", {}, "Exact arguments in ASCII (", print, ")"),
      isOdd && el("p", { class: "quiet" }, "They contain non-ASCII characters, which are escaped here."),
      view,
    );
  }

  /** True once the exact arguments are open, whole, and on the screen up to their end. */
  areArgumentsInView() {
    const isWhole = this.node.querySelector("details.exact").open && !this.more?.isConnected;
    const { top, bottom, height } = this.end.getBoundingClientRect();
    this.isSeen ||= isWhole && height > 0 && top >= 0 && bottom <= innerHeight;
    return this.isSeen;
  }

  /** Shows the next screen of the arguments: each press one, so that none of them passes unseen. */
  turnPage() {
    const frame = this.node.closest(".scroll");
    const start = this.node.querySelector("details.exact");
    if (start.getBoundingClientRect().top > innerHeight || this.end.getBoundingClientRect().bottom < 0) start.scrollIntoView({ block: "start" });
    else frame?.scrollBy({ top: frame.clientHeight * 0.8, behavior: "instant" });
  }

  async give(body) {
    if (performance.now() - this.since < GUARD_MS) return;
    if (body.answer !== "no" && !this.areArgumentsInView()) {
      this.status.textContent = "Read the exact arguments to their end first: open them, show all of them, and scroll down.";
      this.turnPage();
      return;
    }
    if (body.answer !== "no" && !this.confirmation.hidden) {
      if (!this.confirm.value) {
        this.status.textContent = "Type the name first: this call must be confirmed.";
        this.confirm.focus();
        return;
      }
      body = { ...body, confirm: this.confirm.value };
    }
    // A disabled button loses the focus: give it back afterwards.
    this.isAnsweredHere = this.node.contains(document.activeElement);
    this.busy(true);
    this.status.textContent = "";
    this.isSent = true;
    try {
      await this.send(body);
    } catch (error) {
      this.isSent = false;
      this.busy(false);
      if (error.code === "not_confirmed") this.confirmation.hidden = false;
      this.status.textContent = error.message;
    }
  }

  busy(isBusy) {
    for (const each of this.node.querySelectorAll("button, textarea, input")) each.disabled = isBusy;
  }

  /** The card around it is drawn anew: a person who types in the form goes on there. */
  leave() {
    this.focused = this.node.contains(document.activeElement) ? document.activeElement : null;
  }

  enter() {
    this.focused?.focus({ preventScroll: true });
    this.focused = null;
  }

  press(key) {
    const found = this.buttons.find((each) => each.dataset.key === key && !each.disabled && !each.hidden);
    found?.click();
    return Boolean(found);
  }

  // Editing -----------------------------------------------------------------------------------------------------------------

  edit() {
    const isOpen = this.editor.hidden;
    this.editor.hidden = !isOpen;
    const [yes, always, edit] = this.buttons;
    edit.setAttribute("aria-expanded", String(isOpen));
    edit.querySelector("span").textContent = isOpen ? "Discard changes" : "Edit";
    // One way to say yes at a time: with the changes, or without any.
    yes.hidden = always.hidden = isOpen;
    if (!isOpen) return;
    this.fields = Object.entries(this.call.args ?? {}).map(([name, value]) => new Field(name, value));
    const send = button("Approve with changes", { class: "primary", onclick: () => this.giveEdited() }, "finished");
    refill(
      this.editor,
      el("h3", {}, "Edit the arguments"),
      this.fields.length ? this.fields.map((field) => field.node) : el("p", { class: "quiet" }, "This call has no arguments."),
      el("div", { class: "answers" }, send),
    );
    this.fields[0]?.input.focus();
  }

  /** True while the editor is open and something in it was changed. */
  get isEdited() {
    return !this.editor.hidden && this.fields.some((field) => field.input.value !== field.start);
  }

  /** True if changes were typed that nobody sent. */
  get isUnused() {
    return this.isEdited && !this.isSent;
  }

  /** The same call is asked about again, by a service that was started anew for example: what was typed goes on here. */
  inherit(before) {
    this.note.value = before.note.value;
    if (!before.isEdited) return;
    if (JSON.stringify(before.call.args) !== JSON.stringify(this.call.args)) {
      this.status.textContent = "The call has changed meanwhile; the changes that you had typed were not used.";
      return;
    }
    this.edit();
    this.fields.forEach((field, at) => {
      field.input.value = before.fields[at].input.value;
      field.input.dispatchEvent(new Event("input"));
    });
  }

  giveEdited() {
    const args = Object.create(null); // An argument may be called __proto__.
    for (const field of this.fields) {
      try {
        args[field.name] = field.value();
      } catch (error) {
        this.status.textContent = `${field.name}: ${error.message}`;
        field.input.focus();
        return;
      }
    }
    this.give({ answer: "yes", arguments: args, ...(this.note.value && { message: this.note.value }) });
  }
}

/** Shows the key that presses a button. */
function withKey(made) {
  made.setAttribute("aria-keyshortcuts", made.dataset.key);
  made.append(el("kbd", { "aria-hidden": "true" }, made.dataset.key));
  return made;
}

/** One argument: a text is edited as text, anything else as JSON. What is not touched stays exactly as it was. */
class Field {
  constructor(name, value) {
    this.name = name;
    this.before = value;
    this.isText = typeof value === "string";
    const id = freshId("arg");
    const text = this.isText ? value : JSON.stringify(value, null, 2);
    const rows = Math.min(14, Math.max(1, text.split("\n").length));
    this.input = el("textarea", { id, rows, spellcheck: "false", autocomplete: "off", "aria-describedby": `${id}-change` });
    this.input.value = text;
    this.start = this.input.value; // as the browser keeps it: with its own ends of lines
    const change = el("div", { id: `${id}-change` });
    this.input.addEventListener("input", () => showChange(change, this.start, this.input.value));
    const label = el("label", { for: id }, shown(name), this.isText ? "" : el("span", { class: "quiet" }, " (JSON)"));
    this.node = el("div", { class: "field" }, label, this.input, change);
  }

  value() {
    if (this.input.value === this.start) return this.before;
    if (this.isText) return this.input.value;
    try {
      return JSON.parse(this.input.value);
    } catch {
      throw new Error("this is not JSON.");
    }
  }
}
