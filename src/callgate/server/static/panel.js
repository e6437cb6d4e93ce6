// The details beside the conversation: the timeline of an exchange with the tokens, and the tools.

import { api } from "./api.js";
import { byId, el, refill } from "./dom.js";
import { settings } from "./settings.js";
import { cost, count, oneLine } from "./text.js";
import { timelineView } from "./timeline.js";
import { drawTools } from "./tools.js";
import { pictureOf, spentIn } from "./trace.js";

const PICTURE_MS = 250;
const TABS = ["run", "tools"];
const USAGE = [
  ["input_tokens", "Input"],
  ["cached_tokens", "of which cached"],
  ["output_tokens", "Answer"],
  ["thought_tokens", "Thoughts"],
  ["tool_tokens", "Tools"],
  ["total_tokens", "Total"],
];

export class Panel {
  /** `talk` is the conversation; `does` has failed(error), tools(tools) and moved(). */
  constructor(talk, narrow, does) {
    this.talk = talk;
    this.narrow = narrow;
    this.does = does;
    this.pane = byId("pane-run");
    this.looked = null; // the exchange that a person chose to look at; otherwise the last one
    this.drawnAt = 0;
    for (const name of TABS) {
      const tab = byId(`tab-${name}`);
      tab.addEventListener("click", () => this.select(name));
      tab.addEventListener("keydown", (event) => {
        if (event.key !== "ArrowRight" && event.key !== "ArrowLeft") return;
        const other = TABS.find((each) => each !== name);
        this.select(other);
        byId(`tab-${other}`).focus();
      });
    }
    setInterval(() => this.tick(), PICTURE_MS);
  }

  get view() {
    return this.looked ?? this.talk.last;
  }

  get isOpen() {
    return document.body.classList.contains("with-panel");
  }

  shows(name) {
    return byId(`tab-${name}`).getAttribute("aria-selected") === "true";
  }

  // Opening -----------------------------------------------------------------------------------------------------------------

  /** Opens or closes it; by a person's wish it stays so. */
  open(isOpen, isWish = true) {
    document.body.classList.toggle("with-panel", isOpen);
    byId("panel-open").setAttribute("aria-expanded", String(isOpen));
    if (isWish && !this.narrow.matches) settings.panel = isOpen;
    this.does.moved();
    if (isOpen) {
      this.select(this.shows("tools") ? "tools" : "run");
      if (this.narrow.matches && isWish) byId("panel-close").focus();
    } else if (byId("panel").contains(document.activeElement)) byId("panel-open").focus();
  }

  select(name) {
    for (const each of TABS) {
      const isIt = each === name;
      byId(`tab-${each}`).setAttribute("aria-selected", String(isIt));
      byId(`tab-${each}`).tabIndex = isIt ? 0 : -1;
      byId(`pane-${each}`).hidden = !isIt;
    }
    if (name === "tools") this.loadTools();
    else this.draw();
  }

  /** Shows the timeline of one exchange. */
  look(view) {
    this.looked = view;
    this.open(true);
    this.select("run");
  }

  async loadTools() {
    try {
      const tools = await api.tools();
      drawTools(byId("pane-tools"), tools);
      this.does.tools(tools);
    } catch (error) {
      this.does.failed(error);
    }
  }

  // Drawing -----------------------------------------------------------------------------------------------------------------

  tick() {
    if (!this.talk.isLive || this.view !== this.talk.last) return;
    // Times that the service keeps are asked for less often than those that are known here are drawn.
    const every = this.view.clock ? PICTURE_MS : 4 * PICTURE_MS;
    if (performance.now() - this.drawnAt >= every) this.draw();
  }

  async draw() {
    if (this.pane.hidden || this.pane.offsetParent === null) return;
    this.drawnAt = performance.now();
    const { view } = this;
    const title = el("h3", {}, view?.said ? oneLine(view.said, 80) : "Timeline");
    if (!view) {
      refill(this.pane, title, el("p", { class: "quiet" }, "The timeline appears here once something has run."));
      return;
    }
    const picture = view.clock ? view.clock.picture() : await this.past(view);
    if (view !== this.view) return;
    const width = Math.max(220, this.pane.clientWidth - 40);
    // Calls of the same tool are told apart by what they were called with.
    for (const row of picture?.rows || []) {
      const card = view.cards.get(row.id);
      if (row.id === "model" && !picture.isLive) row.outcome = view.outcome;
      if (card) Object.assign(row, { label: card.label, outcome: card.isFinal ? card.state : "" });
    }
    const isTable = this.pane.querySelector(".astable")?.open;
    const drawn = picture ? timelineView(picture, width) : el("p", { class: "quiet" }, "No times were recorded for this exchange.");
    refill(this.pane, title, drawn, this.usage());
    if (isTable && picture) this.pane.querySelector(".astable").open = true;
  }

  /** The times of an exchange that was not watched from its beginning: read again while it goes on. */
  async past(view) {
    const { talk } = this;
    if (!talk.id) return null;
    if (!view.past || talk.isLive) view.past = api.trace(talk.id).catch(() => ({ spans: [] }));
    const { spans } = await view.past;
    return pictureOf(spans, view.runs || []);
  }

  usage() {
    const { usage, cost: spent } = spentIn(this.talk.session);
    if (!usage.total_tokens) return null;
    const rows = USAGE.filter(([key]) => usage[key]).map(([key, words]) => [el("dt", {}, words), el("dd", {}, count(usage[key]))]);
    if (typeof spent === "number") rows.push([el("dt", {}, "Cost"), el("dd", {}, cost(spent))]);
    return [el("h3", {}, "Tokens of this conversation"), el("dl", { class: "usage" }, rows)];
  }
}
