// One call of a tool as a card: what was asked, how far it is, what came of it. The state is a picture and a word.

import { el, freshId, icon, refill } from "./dom.js";
import { ApprovalForm, UNUSED } from "./approval.js";
import { diffView, isDiff } from "./diff.js";
import { mediaView, readable, textView, valueView } from "./bigtext.js";
import { duration, many, oneLine, plain, shown } from "./text.js";

export const STATES = {
  proposed: "Proposed",
  checked: "Checked",
  allowed: "Queued",
  awaiting: "Needs approval",
  started: "Running",
  finished: "Done",
  failed: "Failed",
  denied: "Denied",
  timed_out: "Timed out",
  cancelled: "Cancelled",
  unknown: "Outcome unknown",
  interrupted: "Interrupted",
};
const PICTURES = { checked: "proposed", allowed: "proposed", interrupted: "unknown" };
const FINAL = new Set(["finished", "failed", "denied", "timed_out", "cancelled", "unknown"]);

/** A state as a picture and a word. */
export function stateView(state) {
  return el("span", { class: "state", "data-state": state }, icon(PICTURES[state] || state), el("span", {}, STATES[state] || plain(state)));
}

export class CallCard {
  /** `does` has answer(callId, body) and forms: those of calls that wait, by id, which outlive a card that is drawn anew. */
  constructor(call, { answer, forms }) {
    this.call = call;
    this.answerWith = answer;
    this.forms = forms;
    this.state = "proposed";
    this.argsText = "";
    this.times = { proposed: performance.now() };
    const id = freshId("call");
    this.stateBox = el("span", { class: "statebox" });
    this.summary = el("span", { class: "brief" });
    this.name = el("span", { class: "name" });
    this.time = el("span", { class: "time" });
    this.tag = el("span", { class: "tag", hidden: true }, "edited");
    this.line = el("p", { class: "line" });
    this.meter = el("progress", { max: "1", "aria-label": "Progress of the call", hidden: true });
    this.args = el("div", { class: "args" });
    this.result = el("div", { class: "result" });
    this.body = el("div", { class: "body", id: `${id}-body`, hidden: true }, this.args, this.result);
    this.toggle = el(
      "button",
      { type: "button", class: "head", "aria-expanded": "false", "aria-controls": `${id}-body`, onclick: () => this.open(this.body.hidden) },
      icon("tool"),
      el("span", { class: "what" }, this.name, this.tag, this.summary),
      this.stateBox,
      this.time,
    );
    this.asking = el("div", { class: "asking" });
    this.node = el("div", { class: "call", role: "group", "data-id": call.id, "aria-label": `Call of ${oneLine(call.name, 80)}` }, this.toggle, this.meter, this.line, this.asking, this.body);
    this.describe(call);
    this.become("proposed");
  }

  get isFinal() {
    return FINAL.has(this.state);
  }

  /** Whether it can stand in a line with others: it went well, shows nothing of its own, and nobody is at it. */
  get canFold() {
    return this.state === "finished" && this.body.hidden && !this.outcome?.media?.length && !this.node.contains(document.activeElement);
  }

  /** The call in a few words. */
  get label() {
    const [first] = Object.values(this.call.args || {});
    return first === undefined ? this.call.name : `${this.call.name} ${brief(first)}`;
  }

  open(isOpen) {
    this.body.hidden = !isOpen;
    const fold = this.node.closest(".calls");
    if (isOpen && fold) fold.open = true;
    this.toggle.setAttribute("aria-expanded", String(isOpen));
    this.line.hidden = isOpen && this.isFinal; // the body says the same
    if (isOpen && this.stale) this.drawBody();
  }

  /** The call as it is known now; its arguments may still be arriving. */
  describe(call) {
    this.call = { ...this.call, ...call };
    refill(this.name, shown(this.call.name));
    const args = Object.entries(this.call.args || {});
    refill(this.summary, shown(oneLine(args.map(([key, value]) => `${key}: ${brief(value)}`).join(", "), 140)));
    this.touch();
  }

  become(state) {
    this.state = state;
    this.node.dataset.state = state;
    this.times[state] ??= performance.now();
    refill(this.stateBox, stateView(state));
    if (state !== "awaiting") this.settle();
  }

  addArgs(text) {
    this.argsText += text;
    refill(this.summary, shown(oneLine(this.argsText.slice(-400), 140)));
  }

  ask(asked) {
    this.describe(asked.call);
    this.preview = asked.preview;
    this.become("awaiting");
    const whole = { ...asked, call: this.call };
    const words = JSON.stringify(whole);
    const kept = this.forms.get(this.call.id);
    this.form = kept?.words === words ? kept.form : new ApprovalForm(whole);
    if (kept && this.form !== kept.form) this.form.inherit(kept.form);
    this.forms.set(this.call.id, { words, form: this.form });
    this.form.send = async (body) => {
      await this.answerWith(this.call.id, body);
      this.tag.hidden = !body.arguments;
    };
    refill(this.asking, this.form.node);
    this.form.enter();
  }

  settle() {
    if (!this.form) return;
    const hadFocus = this.form.node.contains(document.activeElement) || (this.form.isAnsweredHere && document.activeElement === document.body);
    const { isUnused } = this.form;
    this.form = null;
    this.forms.delete(this.call.id);
    this.asking.replaceChildren();
    if (isUnused) this.asking.append(el("p", { class: "quiet" }, UNUSED));
    if (hadFocus) this.toggle.focus();
  }

  /** `preview` is what it is about to change, if a person approved it: with arguments that were edited it is not what was asked. */
  start(call, preview) {
    if (preview) this.preview = preview;
    this.describe(call);
    this.become("started");
  }

  progress(message, fraction) {
    refill(this.line, shown(oneLine(message, 300)));
    this.meter.hidden = false;
    if (typeof fraction === "number") this.meter.value = Math.min(1, Math.max(0, fraction));
    else this.meter.removeAttribute("value");
  }

  finish(call, result) {
    if (call) this.describe(call);
    this.outcome = result;
    this.become(result.status || "finished");
    this.meter.hidden = true;
    this.time.textContent = result.duration_s ? duration(result.duration_s) : "";
    const said = result.error || (result.notes || [])[0] || "";
    refill(this.line, shown(oneLine(said, 400)));
    this.line.hidden = !this.body.hidden;
    this.touch();
    const media = (result.media || []).map(mediaView);
    if (media.length) this.line.after(el("div", { class: "media" }, media));
  }

  /** The body is drawn when somebody looks at it. */
  touch() {
    this.stale = true;
    if (!this.body.hidden) this.drawBody();
  }

  drawBody() {
    this.stale = false;
    // What was approved stays to be seen, not only the arguments that it was made from.
    const change = isDiff(this.preview) ? [el("h3", {}, "Change"), diffView(this.preview)] : null;
    refill(this.args, change, el("h3", {}, "Arguments"), argsView(this.call));
    refill(this.result, this.outcome ? resultView(this.outcome) : null);
  }
}

const brief = (value) => (typeof value === "string" ? value : (JSON.stringify(value) ?? "")).slice(0, 200);

function argsView(call) {
  const args = Object.entries(call.args || {});
  const extra = [call.problem && el("p", { class: "failed-line" }, shown(call.problem)), (call.notes || []).map((note) => el("p", { class: "quiet" }, shown(note)))];
  if (!args.length) return [el("p", { class: "quiet" }, "None."), extra];
  return [el("dl", {}, args.map(([key, value]) => [el("dt", {}, shown(key)), el("dd", {}, textView(readable(value), `Argument ${plain(key)}`))])), extra];
}

function resultView(result) {
  const isValue = result.status === "finished";
  const text = isValue ? readable(result.value) : result.error || "";
  const words = isValue ? `Result (${many(text.length, "character")})` : "Error";
  const notes = (result.notes || []).map((note) => el("p", { class: "quiet" }, shown(note)));
  return [el("h3", {}, words), valueView(text, words), notes, (result.media || []).length ? el("p", { class: "quiet" }, many(result.media.length, "medium", "media")) : null];
}
