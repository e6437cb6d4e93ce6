// One exchange: what a person said, and what the model and the tools made of it, live from events or afterwards from the history.

import { button, el, icon, refill } from "./dom.js";
import { CallCard } from "./call.js";
import { QuestionForm } from "./question.js";
import { MarkdownStream, copy, markdown } from "./markdown.js";
import { mediaView, textView } from "./bigtext.js";
import { madeView, sourcesView, stepOf, stepView } from "./sources.js";
import { Clock } from "./timeline.js";
import { fileText } from "./composer.js";
import { cost, count, duration, many, oneLine, plain, shown } from "./text.js";

const LONG_ANSWER = 200_000; // an answer beyond this is shown as text: marks in it would cost more than they are worth

// What a person can do about an error of the model; the terminal gives the same advice.
const ADVICE = {
  model_auth: "Check the key that the service was started with (GOOGLE_API_KEY or GEMINI_API_KEY), or make a new one at aistudio.google.com/apikey.",
  model_refused: "If the model is unknown, choose one from the list below the message field.",
  model_rate_limited: "Wait a moment, or check the quota of the key.",
  model_unreachable: "Check the network of the service, and whether it needs a proxy (HTTPS_PROXY).",
  model_unavailable: "The model's server has a problem; trying again later usually helps.",
};

const PASSING = new Set(["waiting", "uploading"]); // notices of what is tried again, or goes on
const FOLDED_MIN = 6;
const LONG_BLOCK = 20_000;
const LONG_BLOCK_MS = 150;

const ENDS = {
  turn_limit: "Stopped: the turn limit was reached.",
  call_limit: "Stopped: the call limit was reached.",
  token_limit: "Stopped: the token limit was reached.",
  cost_limit: "Stopped: the cost limit was reached.",
  loop: "Stopped: the model kept repeating the same call.",
  cancelled: "Cancelled.",
  approval_needed: "Paused: a call needs approval.",
  MAX_TOKENS: "The answer was truncated at its maximum length.",
  SAFETY: "The answer was blocked by the model's safety filter.",
};

export class TurnView {
  /** `does` has answer(callId, body), fork(turn), undo(turn), look(turn) and grew(). */
  constructor(does, { said = null, parts = [] } = {}) {
    this.does = does;
    this.said = said;
    this.outcome = ""; // how it ended, if it did not end well
    this.exchange = null; // its id, as soon as the service has said it
    this.cards = new Map();
    this.questions = new Map();
    this.pending = "";
    this.answer = null;
    this.thought = null;
    this.text = "";
    this.usage = null;
    this.heading = el("h2", { class: "unseen" }, said === null ? "Continued" : `You asked: ${oneLine(said, 120)}`);
    this.parts = parts.filter((part) => part.text === undefined || fileText(part)); // what went with the message
    this.prompt = said === null ? null : el("div", { class: "said" }, saidView(said), this.parts.map(partView));
    this.work = el("div", { class: "work" });
    this.foot = el("footer", { class: "foot", hidden: true });
    this.node = el("article", { class: "turn" }, this.heading, this.prompt, this.work, this.foot);
  }

  // Live --------------------------------------------------------------------------------------------------------------------

  /** A run begins. One that is joined later is timed by the service. */
  begin(isFromStart = true) {
    this.clock = isFromStart && !this.cards.size ? new Clock() : null;
    this.past = null;
    this.busy = el("p", { class: "busy" }, el("span", { class: "dots", "aria-hidden": "true" }), (this.doing = el("span", {}, "Thinking")));
    this.node.append(this.busy);
    this.node.classList.add("live");
  }

  take(event) {
    this.clock?.take(event);
    if (event.type !== "text_delta") this.flush();
    TAKES[event.type]?.call(this, event);
    if (event.type === "text_delta") return;
    if (this.busy) this.doing.textContent = this.activity();
    this.does.grew();
  }

  /** What goes on, in a few words. */
  activity() {
    const running = [...this.cards.values()].filter((card) => card.state === "started").length;
    if (this.asking.length) return "Waiting for approval";
    if (this.questions.size) return "Waiting for your answer";
    if (running) return `Running ${many(running, "call")}`;
    return this.answer ? "Writing" : "Thinking";
  }

  card(call) {
    let card = this.cards.get(call.id);
    if (!card) {
      this.endText();
      card = new CallCard(call, this.does);
      this.cards.set(call.id, card);
      this.work.append(card.node);
    }
    return card;
  }

  flush() {
    cancelAnimationFrame(this.frame);
    clearTimeout(this.pause);
    this.frame = 0;
    if (!this.pending) return;
    if (!this.answer) {
      const node = el("div", { class: "answer" });
      this.work.append(node);
      this.endText();
      this.answer = new MarkdownStream(node);
    }
    this.text += this.pending;
    this.answer.add(this.pending);
    this.pending = "";
    if (this.busy) this.doing.textContent = this.activity();
    this.does.grew();
  }

  /** What is said next stands in an element of its own. */
  endText() {
    this.answer?.end();
    this.thought?.end();
    this.answer = this.thought = null;
  }

  /** Nothing runs: what had begun did not end. */
  interrupt() {
    for (const card of this.cards.values()) if (!card.isFinal && card.state !== "awaiting") card.become("interrupted");
  }

  /** `passing` is the code of one that the next of its kind replaces: attempts and uploads are counted in one line. */
  notice(message, level = "info", passing = "") {
    const node = el("p", { class: `notice ${level}`, "data-passing": passing || null }, icon(level === "info" ? "info" : "warning"), el("span", {}, shown(message)));
    const before = this.work.lastElementChild;
    if (passing && before?.dataset.passing === passing) before.replaceWith(node);
    else this.work.append(node);
  }

  /** The exchange is over, in whatever way. */
  close({ usage = this.usage, spent = null, seconds = null, reason = "STOP" } = {}) {
    this.flush();
    this.answer?.end();
    this.thought?.end();
    if (this.clock?.isLive) this.clock.stop();
    this.fold();
    for (const form of this.questions.values()) form.close("cancel");
    this.questions.clear();
    this.busy?.remove();
    this.busy = null;
    this.node.classList.remove("live");
    if (reason === "cancelled") this.outcome = reason;
    if (ENDS[reason]) this.notice(ENDS[reason], reason === "approval_needed" ? "info" : "warning");
    else if (reason !== "STOP" && reason) this.notice(`The model ended with ${reason}.`, "warning");
    this.facts = { usage, spent, seconds: seconds ?? (this.clock ? this.clock.end : null) };
    this.drawFoot();
  }

  drawFoot(isLast = true) {
    const { usage, spent, seconds } = this.facts || {};
    const words = [
      this.cards.size && many(this.cards.size, "call"),
      seconds > 0 && duration(seconds),
      usage?.total_tokens && `${count(usage.total_tokens)} tokens`,
      typeof spent === "number" && `cost ${cost(spent)}`,
    ].filter(Boolean);
    refill(
      this.foot,
      el("span", { class: "sum" }, words.join(" · ")),
      el(
        "span",
        { class: "tools" },
        isLast && this.exchange && this.said !== null && button(this.canRetry ? "Retry" : "Regenerate", { class: "link", "data-do": "retry", title: "Send the message again, in place of this exchange", onclick: () => this.does.retry(this) }, "again"),
        isLast && this.canRetry && this.isAnswered && this.exchange && button("Continue", { class: "link", "data-do": "continue", title: "Continue from the results so far", onclick: () => this.does.goOn() }, "send"),
        button("Timeline", { class: "link", "data-do": "look", onclick: () => this.does.look(this) }, "clock"),
        this.text && button("Copy", { class: "link", "data-do": "copy", onclick: (event) => copy(event.currentTarget.lastChild, this.text) }, "copy"),
        this.exchange && this.said !== null && button("Edit", { class: "link", "data-do": "edit", title: "Change the message, in a new conversation that is the same up to here", onclick: () => this.edit() }, "edit"),
        this.exchange && button("Fork", { class: "link", "data-do": "fork", title: "Start a new conversation with everything up to here", onclick: () => this.does.fork(this) }, "fork"),
        isLast && this.exchange && button("Undo", { class: "link", "data-do": "undo", title: "Remove this exchange and restore the files it changed", onclick: () => this.does.undo(this) }, "undo"),
      ),
    );
    this.foot.hidden = false;
  }

  /** The message can be changed in its place; it is sent in a fork of the conversation. */
  edit() {
    const field = el("textarea", { rows: "3", "aria-label": "Your message" });
    field.value = this.said;
    const back = () => {
      this.prompt.replaceWith(before);
      this.prompt = before;
      this.foot.querySelector("[data-do=edit]")?.focus();
    };
    const send = () => field.value.trim() && this.does.edit(this, field.value.trim());
    const before = this.prompt;
    this.prompt = el(
      "form",
      {
        class: "said editing",
        onsubmit: (event) => {
          event.preventDefault();
          send();
        },
        onkeydown: (event) => {
          if (event.key === "Escape") back();
          else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) send();
          else return;
          event.preventDefault();
          event.stopPropagation();
        },
      },
      field,
      el("div", { class: "answers" }, button("Cancel", { onclick: back }), el("button", { type: "submit", class: "primary" }, "Send")),
    );
    before.replaceWith(this.prompt);
    field.focus();
  }

  /** Many calls in a row that went well become one line, which opens; one that somebody looks at stays. */
  fold() {
    const rows = [[]];
    const cards = new Map([...this.cards.values()].map((card) => [card.node, card]));
    for (const node of this.work.children) {
      if (cards.get(node)?.canFold) rows.at(-1).push(cards.get(node));
      else rows.push([]);
    }
    for (const row of rows.filter((each) => each.length >= FOLDED_MIN)) {
      const names = new Map();
      for (const { call } of row) names.set(call.name, (names.get(call.name) || 0) + 1);
      const words = [...names].map(([name, times]) => `${plain(name)}${times > 1 ? ` × ${times}` : ""}`).join(", ");
      const fold = el("details", { class: "calls" }, el("summary", {}, icon("finished"), el("strong", {}, `${many(row.length, "call")} done`), el("span", { class: "brief" }, oneLine(words, 200))));
      row[0].node.before(fold);
      fold.append(...row.map((card) => card.node));
    }
  }

  get asking() {
    return [...this.cards.values()].filter((card) => card.form);
  }

  // Afterwards --------------------------------------------------------------------------------------------------------------

  /** What the service knows of the exchange beside the history: its id, and how it ended if it failed. */
  know(known) {
    if (!this.node.classList.contains("live")) this.fold();
    if (!known) return;
    this.exchange = known.id;
    this.runs = known.runs;
    this.facts = { usage: known.usage, spent: known.cost, seconds: known.duration_s };
    if (known.finish_reason === "cancelled") this.outcome = known.finish_reason;
    this.isAnswered = known.answered;
    this.canRetry = Boolean(known.failure) || !known.answered;
    if (known.failure?.partial) this.addPart({ text: known.failure.partial });
    if (known.failure) this.fail(known.failure);
    else if (ENDS[known.finish_reason]) this.notice(ENDS[known.finish_reason], "warning");
  }

  /** The run ended with an error: what it was, and what a person can do about it. */
  fail({ error, message }) {
    const said = String(message || "");
    this.notice(said.charAt(0).toUpperCase() + said.slice(1), "warning");
    if (ADVICE[error]) this.notice(ADVICE[error]);
    this.outcome = "failed";
    this.canRetry = true;
  }

  /** Something the model said, from the history. */
  addPart(part, record) {
    if (part.functionCall) return this.addCall(part.functionCall, record);
    if (part.inlineData) return this.work.append(mediaView(part, "model"));
    const step = stepOf(part);
    if (step) return this.work.append(stepView(step));
    if (typeof part.text !== "string" || !part.text) return null;
    if (part.thought) return TAKES.thought_delta.call(this, { text: part.text });
    this.endText();
    this.text += part.text;
    const view = part.text.length > LONG_ANSWER ? textView(part.text, "Answer") : markdown(part.text);
    return this.work.append(el("div", { class: "answer" }, view));
  }

  /** The sources of an answer, after it. */
  addMetadata(metadata) {
    const view = sourcesView(metadata);
    if (view) this.put(view);
  }

  put(view) {
    this.flush();
    this.endText();
    this.work.append(view);
  }

  addCall(wire, record) {
    this.endText();
    const call = record ? record.call : { id: wire.id || `call-${this.cards.size}`, name: wire.name, args: wire.args || {} };
    const card = new CallCard(call, this.does);
    this.cards.set(call.id, card);
    this.work.append(card.node);
    card.preview = record?.preview;
    if (record?.result) card.finish(call, record.result);
    else if (record) card.become(record.state);
    card.tag.hidden = !record?.edited;
    return card;
  }

  /** The answer to a call, from the history alone: for calls of which nothing else is known. */
  addResponse(card, response) {
    if (!card || card.isFinal) return;
    const said = response.response || {};
    const isError = "error" in said && !("result" in said);
    card.finish(null, {
      status: isError ? "failed" : "finished",
      error: isError ? String(said.error) : null,
      value: "result" in said ? said.result : said,
      notes: Array.isArray(said.notes) ? said.notes.map(String) : [],
      media: (response.parts || []).filter((part) => part.inlineData),
    });
  }
}

const saidView = (said) => (said.length > 4000 ? textView(said, "Your message") : said && markdown(said));

/** What went with a message. */
function partView(part) {
  const file = fileText(part);
  if (file) return el("details", { class: "attached" }, el("summary", {}, shown(file.name)), textView(file.text, file.name));
  if (part.inlineData) return mediaView(part, "user");
  const uri = part.fileData?.displayName || part.fileData?.fileUri;
  return uri && el("p", { class: "quiet" }, shown(oneLine(uri, 200)));
}

const TAKES = {
  text_delta({ text }) {
    this.pending += text;
    if (this.frame) return;
    // A hidden page gets no frames; what has arrived is put in by the next event that is no text. A long block is drawn anew
    // with each piece of it, so its pieces are taken together.
    this.frame = requestAnimationFrame(() => {
      if (this.answer?.text.length > LONG_BLOCK) this.pause = setTimeout(() => this.flush(), LONG_BLOCK_MS);
      else this.flush();
    });
  },
  thought_delta({ text }) {
    if (!this.thought) {
      this.endText();
      const node = el("div", { class: "thoughttext" });
      this.thought = new MarkdownStream(node);
      this.thought.words = el("summary", {}, "Thoughts");
      this.thought.since = performance.now();
      this.work.append(el("details", { class: "thought" }, this.thought.words, node));
    }
    this.thought.add(text);
    // Of thoughts that are read again nobody knows how long they took.
    const seconds = (performance.now() - this.thought.since) / 1000;
    if (this.busy && seconds >= 1) this.thought.words.textContent = `Thought for ${duration(seconds)}`;
  },
  call_proposed({ call }) {
    this.card(call);
  },
  call_args_delta({ call_id, text }) {
    this.cards.get(call_id)?.addArgs(text);
  },
  approval_needed({ call, reason, preview, always, confirm }) {
    const card = this.card(call);
    if (!card.isFinal) card.ask({ call, reason, preview, always, confirm });
  },
  question_asked(asked) {
    const form = new QuestionForm(asked, (body) => this.does.reply(asked.id, body));
    this.questions.set(asked.id, form);
    this.put(form.node);
  },
  question_closed({ id, action }) {
    this.questions.get(id)?.close(action);
    this.questions.delete(id);
  },
  call_started({ call, preview }) {
    this.card(call).start(call, preview);
  },
  call_progress({ call_id, message, fraction }) {
    this.cards.get(call_id)?.progress(message, fraction);
  },
  call_finished({ call, result }) {
    this.card(call).finish(call, result);
  },
  media_received({ media }) {
    this.put(madeView(media));
  },
  server_step_reported({ step }) {
    this.put(stepView(step));
  },
  metadata_reported({ metadata }) {
    this.addMetadata(metadata);
  },
  usage_reported({ usage }) {
    const sum = this.usage || {};
    this.usage = Object.fromEntries(Object.entries(usage).map(([key, value]) => [key, (sum[key] || 0) + value]));
  },
  notice({ code, message, level }) {
    this.notice(message, level, PASSING.has(code) ? code : "");
  },
  run_ended({ reply }) {
    for (const record of reply.approvals || []) {
      const card = this.card(record.call);
      if (!card.form && !card.isFinal) card.become("awaiting");
    }
    this.close({ usage: reply.usage, spent: reply.cost, reason: reply.finish_reason });
  },
  error(event) {
    this.fail(event);
    this.close();
  },
};

/**
 * The exchanges of a history: for each one what was said, and the steps that `fill` puts into a view. `listed` are those that
 * the service knows; some of them failed, and are not in the history. `metadata` is that of answers, by the index of their content.
 */
export function exchanges(contents, records, listed = [], metadata = []) {
  const found = [];
  const places = new Map(listed.filter((known) => known.answered).map((known) => [known.index, known]));
  const reported = new Map(metadata.map((entry) => [entry.content, entry.metadata]));
  for (const [index, content] of contents.entries()) {
    const parts = content.parts || [];
    // Answers of tools may stand in the same content as what a person said after them.
    const said = content.role === "user" ? parts.filter((part) => !part.functionResponse) : [];
    const steps = content.role === "user" ? parts.filter((part) => part.functionResponse) : parts;
    if (steps.length && !found.length) found.push({ said: null, parts: [], steps: [] });
    found.at(-1)?.steps.push(...steps.map((part) => ({ part, record: null })));
    if (reported.has(index)) found.at(-1)?.steps.push({ part: {}, record: null, metadata: reported.get(index) });
    if (said.length) found.push({ said: saidIn(said), parts: said, steps: [], known: places.get(index) });
  }
  let after = -1;
  for (const known of listed) {
    if (known.answered) after = Math.max(after, found.findIndex((exchange) => exchange.known === known));
    else found.splice((after += 1), 0, { said: saidIn(known.content.parts || []) || known.said, parts: known.content.parts || [], steps: [], known });
  }
  const calls = ({ steps }) => steps.filter(({ part }) => part.functionCall);
  const byId = new Map((records || []).map((record) => [record.call.id, record]));
  for (const exchange of found) {
    const made = calls(exchange);
    const ids = exchange.known?.proposed ?? [];
    // Two calls may look the same to the model: which record is whose only the service knows.
    if (made.length === ids.length) made.forEach((step, at) => take(step, byId, ids[at]));
  }
  match(found.flatMap(calls).filter(({ record }) => !record), [...byId.values()]);
  return found;
}

function take(step, records, id) {
  step.record = records.get(id) ?? null;
  records.delete(id);
}

const saidIn = (parts) => parts.map((part) => (fileText(part) ? "" : part.text || "")).join("");

/** Puts the steps of an exchange into its view. */
export function fill(view, steps) {
  const open = [];
  for (const { part, record, metadata } of steps) {
    if (metadata) view.addMetadata(metadata);
    else if (part.functionResponse) {
      const wire = part.functionResponse;
      const at = open.findIndex((entry) => (wire.id ? entry.id === wire.id : entry.name === wire.name));
      if (at >= 0) view.addResponse(open.splice(at, 1)[0].card, wire);
    } else {
      const made = view.addPart(part, record);
      if (part.functionCall) open.push({ id: part.functionCall.id, name: part.functionCall.name, card: made });
    }
  }
}

/**
 * Gives each call of the history its record. Records come in the order in which calls ended, and those of exchanges that were
 * taken back are among them; so the newest that fits is taken, and one that fits exactly before one that only has the name.
 */
function match(steps, records) {
  const free = new Set(records);
  const nameOf = (call) => call.wire_name || call.name;
  const rules = [
    [(wire) => wire.id, (call) => call.wire_id],
    [(wire) => !wire.id && wire.name + stable(wire.args), (call) => nameOf(call) + stable(call.args)],
    [(wire) => !wire.id && wire.name, nameOf],
  ];
  for (const [keyOfStep, keyOfCall] of rules) {
    const index = new Map();
    for (const record of free) {
      const key = keyOfCall(record.call);
      if (!index.has(key)) index.set(key, []);
      index.get(key).push(record);
    }
    for (const step of [...steps].reverse().filter(({ record }) => !record)) {
      const key = keyOfStep(step.part.functionCall);
      step.record = (key && index.get(key)?.pop()) || null;
      free.delete(step.record);
    }
  }
}

/** JSON with the keys of every object in order: what is the same is written the same. */
const stable = (value) =>
  JSON.stringify(value ?? {}, (_, inner) =>
    inner && typeof inner === "object" && !Array.isArray(inner) ? Object.fromEntries(Object.entries(inner).sort()) : inner,
  );
