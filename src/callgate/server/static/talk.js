// The conversation that is open: its exchanges on the screen, the run that goes on in it, and what a person may do with it.

import { Watch, api, freshKey } from "./api.js";
import { button, el, refill } from "./dom.js";
import { message, promptOf } from "./composer.js";
import { TurnView, exchanges, fill } from "./turn.js";
import { count, many, oneLine } from "./text.js";

const FIRST_DRAWN = 40; // exchanges that are there at once; older ones are put above them while the browser has nothing else to do
const DRAWN_AT_ONCE = 25;
const NEAR_PX = 120;
const AGAIN_MS = 2000;

const STARTERS_MAX = 3;
const STARTERS = {
  list_files: "Which files are here?",
  read_file: "What does the README say?",
  search_files: "Which files mention TODO?",
  calculate: "What is 15% of 240?",
  current_time: "What time is it in Tokyo?",
};

/** Questions that the tools at hand can answer. */
function starters(tools) {
  const names = new Set(tools.filter((each) => each.permission !== "deny").map((each) => each.name));
  const known = Object.entries(STARTERS).filter(([name]) => names.has(name));
  const others = tools.filter((each) => names.has(each.name) && !STARTERS[each.name] && each.description?.trim());
  return [...known.map(([, words]) => words), ...others.map((each) => `Use ${oneLine(each.name, 40)}: ${oneLine(each.description.trim().split("\n")[0].replace(/\.$/, ""), 60)}`)].slice(0, STARTERS_MAX);
}

export class Talk {
  /** `page` is told of everything that the frame around the conversation shows. */
  constructor(place, scroll, page) {
    this.place = place;
    this.scroll = scroll;
    this.page = page;
    this.does = {
      answer: (call, body) => this.answer(call, body),
      forms: new Map(),
      reply: (question, body) => api.reply(this.id, question, body),
      fork: (view) => page.fork(this.id, view.exchange),
      undo: () => page.undo(),
      retry: (view) => page.retry(view),
      edit: (view, text) => page.edit(view, message(text, view.parts)),
      goOn: () => page.goOn(),
      look: (view) => page.look(view),
      grew: () => this.follow(),
    };
    this.reset(null);
    scroll.addEventListener("scroll", () => this.scrolled(), { passive: true });
    // Somebody who opens something wants to look at it, not at the end.
    place.addEventListener("click", ({ target }) => target.closest(".head, summary, .more, [data-do=edit]") && (this.isPinned = false), true);
    new ResizeObserver(() => this.follow()).observe(place);
    setInterval(() => this.lookAgain(), AGAIN_MS);
    document.addEventListener("visibilitychange", () => this.lookAgain());
  }

  reset(id) {
    this.watch?.leave();
    this.watch = null;
    clearTimeout(this.timer);
    this.id = id;
    this.session = null;
    this.views = [];
    this.footed = null;
    this.undrawn = [];
    this.does.forms.clear();
    this.isPinned = true;
    this.ticket = (this.ticket || 0) + 1;
    this.place.replaceChildren();
  }

  get last() {
    return this.views.at(-1);
  }

  get isLive() {
    return Boolean(this.watch);
  }

  get asking() {
    return this.views.flatMap((view) => view.asking);
  }

  // Reading -----------------------------------------------------------------------------------------------------------------

  /** Shows a conversation that the service keeps. */
  async open(id, isGoingOn = false) {
    const session = await this.read(id);
    if (session) this.show(session, isGoingOn);
  }

  show(session, isGoingOn = false) {
    this.draw(session, isGoingOn);
    if (session.run) this.join(session);
    else this.standing();
  }

  /** Others may write to the conversation, in another tab or process: it is read again whenever they did. */
  async lookAgain() {
    const { ticket } = this;
    if (!this.id || !this.session || this.isLive || this.isSettling || document.hidden) return;
    const session = await api.session(this.id, this.session.tag).catch((error) => (error.status === 404 ? "gone" : null));
    if (ticket !== this.ticket || this.isLive || this.isSettling || !session) return;
    if (session === "gone") this.page.deleted();
    else this.show(session);
  }

  async read(id) {
    const isOther = id !== this.id;
    if (isOther) this.reset(id);
    const ticket = (this.ticket += 1);
    clearTimeout(this.timer);
    this.watch?.leave();
    this.watch = null;
    const session = await api.session(id);
    return ticket === this.ticket ? session : null;
  }

  /** Reads the conversation again: after a run whose events are gone, an undo, or an answer with which it goes on. */
  async again(isGoingOn = false) {
    if (this.id) await this.open(this.id, isGoingOn);
  }

  draw(session, isGoingOn) {
    this.session = session;
    const found = exchanges(session.contents || [], session.calls || [], session.exchanges || [], session.answer_metadata || []);
    // The events of a run that goes on say all of it, from the first on; what an earlier run did of the same exchange they don't.
    if (session.run && found.length && !isGoingOn) found.at(-1).steps = [];
    const opened = this.openCards();
    const focused = document.activeElement?.closest?.(".call")?.dataset.id;
    for (const { form } of this.does.forms.values()) form.leave();
    const { scrollTop } = this.scroll;
    const wasPinned = this.isPinned;
    this.place.replaceChildren();
    this.undrawn = found.slice(0, -FIRST_DRAWN);
    this.views = found.slice(-FIRST_DRAWN).map((exchange) => this.made(exchange));
    this.place.append(...this.views.map((view) => view.node));
    for (const card of this.views.flatMap((view) => [...view.cards.values()])) {
      if (opened.has(card.call.id)) card.open(true);
      if (focused === card.call.id) card.toggle.focus({ preventScroll: true });
    }
    this.feet();
    this.page.changed();
    if (wasPinned) this.toEnd();
    else this.scroll.scrollTop = scrollTop;
    if (this.undrawn.length) this.later(() => this.drawMore(this.ticket));
  }

  /** Cards that a person opened stay open when the conversation is drawn anew. */
  openCards() {
    return new Set(this.views.flatMap((view) => [...view.cards.values()]).filter((card) => !card.body.hidden).map((card) => card.call.id));
  }

  made({ said, parts, steps, known }) {
    const view = new TurnView(this.does, { said, parts });
    fill(view, steps);
    view.know(known);
    view.drawFoot(false);
    return view;
  }

  later(work) {
    if (globalThis.requestIdleCallback) requestIdleCallback(work, { timeout: 500 });
    else setTimeout(work, 30);
  }

  drawMore(ticket) {
    if (ticket !== this.ticket || !this.undrawn.length) return;
    const older = this.undrawn.splice(-DRAWN_AT_ONCE).map((exchange) => this.made(exchange));
    this.views.unshift(...older);
    const height = this.scroll.scrollHeight;
    this.place.prepend(...older.map((view) => view.node));
    // What is on the screen stays where it is, also where the browser does not see to it.
    if (this.isPinned) this.toEnd();
    else if (!CSS.supports("overflow-anchor", "auto")) this.scroll.scrollTop += this.scroll.scrollHeight - height;
    this.later(() => this.drawMore(ticket));
  }

  feet() {
    // Only the last exchange can be undone; of the others, the one that was the last before has to learn it.
    for (const view of new Set([this.footed, this.last])) {
      if (view && this.views.includes(view) && !view.node.classList.contains("live")) view.drawFoot(view === this.last);
    }
    this.footed = this.last;
  }

  /** How a conversation stands in which nothing runs: calls may wait, or a run may have been cut off. */
  standing() {
    const waiting = new Set((this.session?.approvals || []).map(({ call }) => call.id));
    for (const [id, { form }] of this.does.forms) {
      if (waiting.has(id)) continue;
      this.does.forms.delete(id);
      if (form.isUnused) this.page.unused();
    }
    for (const asked of this.session?.approvals || []) this.last?.card(asked.call).ask(asked);
    if (this.session?.state === "interrupted") this.last?.interrupt();
    this.page.standing(this.session?.state);
  }

  // Running -----------------------------------------------------------------------------------------------------------------

  send(given, choice) {
    this.id ??= `web-${freshKey().slice(0, 12)}`;
    const view = new TurnView(this.does, { said: given.text, parts: given.parts });
    this.views.push(view);
    this.place.append(view.node);
    this.start(view, { body: { prompt: promptOf(given), session: this.id, stream: true, ...choice } });
  }

  /** Goes on with what stopped. */
  goOn(choice) {
    const view = this.last ?? new TurnView(this.does);
    if (!this.last) {
      this.views.push(view);
      this.place.append(view.node);
    }
    this.start(view, { body: { session: this.id, stream: true, ...choice } });
  }

  join(session) {
    const view = this.last ?? new TurnView(this.does);
    if (!this.last) {
      this.views.push(view);
      this.place.append(view.node);
    }
    this.start(view, { sessionId: session.id ?? this.id });
    this.joined = true;
  }

  start(view, how) {
    view.begin(!how.sessionId);
    view.foot.hidden = true;
    this.feet();
    this.isPinned = true;
    this.joined = false;
    const ticket = this.ticket;
    const mine = (act) => (...given) => ticket === this.ticket && act(...given);
    this.watch = new Watch(
      {
        event: mine((event) => this.take(view, event)),
        lost: mine((seconds, retry) => this.page.lost(seconds, retry)),
        found: mine(() => this.page.found()),
        gone: mine(() => this.isGone(view)),
        refused: mine((error) => this.isRefused(view, error)),
      },
      how,
    );
    this.page.changed();
    this.toEnd();
  }

  take(view, event) {
    if (event.type === "error" && event.error === "events_gone") {
      this.isGone(view);
      return;
    }
    view.take(event);
    this.page.heard(event, view);
    if (event.type === "run_started") {
      this.id = event.session;
      this.page.changed();
    }
    if (event.type === "run_ended" || event.type === "error") this.isOver(event);
  }

  isOver(event) {
    const { id } = this;
    this.scroll.dataset.settling = "";
    this.settling = this.settle(event).finally(() => {
      delete this.scroll.dataset.settling;
      if (!this.isLive && id === this.id) this.page.rested(event);
    });
  }

  /** The last exchange as the service knows it: what is done to it needs its id, which comes after the run has ended. */
  async settled() {
    await this.settling;
    const { id } = this;
    if (this.last?.exchange || this.isLive || !id || !this.last) return this.last;
    const session = await api.session(id);
    if (id === this.id && !this.isLive) this.learn(session);
    return this.last;
  }

  async settle(event) {
    this.watch = null;
    const wasJoined = this.joined;
    const ticket = this.ticket;
    this.feet();
    this.page.changed();
    this.isSettling = true;
    const session = await api.session(this.id).catch(() => null);
    this.isSettling = false;
    if (!session || ticket !== this.ticket) return;
    this.session = session;
    this.learn(session);
    this.feet();
    this.page.changed();
    // Others may have written between what was shown and this exchange.
    const isWhole = session.exchanges.at(-2)?.id === this.views.at(-2)?.exchange;
    if (wasJoined || !isWhole || (event.reply?.approvals || []).length) this.again().catch((error) => this.page.failed(error));
    // The run that has just ended may hold its session a moment longer; another one is found when the page looks again.
    else this.page.standing(session.state === "running" ? "" : session.state);
  }

  /** What the service knows of the last exchange by now. */
  learn(session) {
    const known = session.exchanges.at(-1);
    if (!this.last || !known) return;
    Object.assign(this.last, { exchange: known.id, runs: known.runs, isAnswered: known.answered });
    this.last.canRetry ||= Boolean(known.failure) || !known.answered;
  }

  isGone(view) {
    // The service was started anew, or has forgotten the events: what it kept of the run is in the session.
    this.watch = null;
    view.close({ reason: "" });
    this.page.found();
    const ticket = this.ticket;
    const { id } = this;
    const read = () =>
      ticket === this.ticket &&
      this.again().then(() => id === this.id && !this.isLive && this.page.rested({}), (error) => {
        this.page.failed(error);
        this.timer = setTimeout(read, AGAIN_MS);
      });
    read();
  }

  isRefused(view, error) {
    this.watch = null;
    this.page.found();
    if (view.cards.size || view.text || this.joined || error.code.startsWith("model_")) {
      // The exchange failed and is kept by the service, with its error.
      view.fail({ error: error.code, message: error.message });
      view.close({ reason: "" });
      this.isOver({});
    } else {
      // Nothing came of it: what was typed goes back to where it was typed.
      view.close({ reason: "" });
      if (view.said !== null) {
        view.node.remove();
        this.views.pop();
      }
      this.page.refused(error, view.said === null ? null : message(view.said, view.parts));
      // Somebody else's run is under way: it is shown instead.
      if (error.status === 409) this.again().catch(() => null);
    }
    this.page.changed();
  }

  async answer(call, body) {
    const wasLive = this.isLive; // a quick run is over before its answer's answer is here
    await api.answer(this.id, call, body);
    this.page.answered(wasLive);
  }

  // Scrolling ---------------------------------------------------------------------------------------------------------------

  scrolled() {
    const { scrollHeight, scrollTop, clientHeight } = this.scroll;
    this.isPinned = scrollHeight - scrollTop - clientHeight < NEAR_PX;
    this.page.pinned(this.isPinned);
  }

  follow() {
    if (this.isPinned && this.views.length) this.toEnd();
  }

  toEnd() {
    this.scroll.scrollTop = this.scroll.scrollHeight;
    this.isPinned = true;
    this.page.pinned(true);
  }

  /** The words at the top of the page. */
  get title() {
    return oneLine(this.session?.title || this.views[0]?.said || "", 80) || "New conversation";
  }

  /** What an empty conversation shows: what the tools at hand may do, and what can be asked of them. */
  welcome(tools, ask) {
    const asks = tools.filter((each) => each.permission === "ask").length;
    const denied = tools.filter((each) => each.permission === "deny").length;
    const kinds = [
      asks && `${asks === tools.length ? "All of them" : count(asks)} wait here for your approval before they run`,
      tools.length - asks - denied && `${asks + denied ? count(tools.length - asks - denied) : "All of them"} run without asking`,
      denied && `${count(denied)} are denied`,
    ].filter(Boolean);
    refill(
      this.place,
      el(
        "div",
        { class: "welcome" },
        el("h2", {}, "What can I do for you?"),
        el("p", {}, "The model may call ", el("strong", {}, many(tools.length, "tool")), tools.length ? `. ${kinds.join("; ")}.` : "."),
        el("ul", { class: "starters" }, starters(tools).map((words) => el("li", {}, button(words, { "data-do": "starter", onclick: () => ask(words) })))),
        el("p", { class: "quiet keyed" }, "Press ", el("kbd", {}, "?"), " for the keyboard shortcuts."),
      ),
    );
  }
}
