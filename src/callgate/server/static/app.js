// The page: puts the conversation, the list, the panel and the keys together, and says what happens to those who cannot see it.

import { Refused, Unreachable, api, ask, forgetEarly, watchers } from "./api.js";
import { button, byId, el, icon, refill } from "./dom.js";
import { UNUSED } from "./approval.js";
import { Composer, message } from "./composer.js";
import { askText, askToken, confirm, help } from "./dialogs.js";
import { exportText } from "./export.js";
import { Choice, branches, drawTheme, nextTheme, settings } from "./settings.js";
import { SessionList } from "./sessions.js";
import { Talk } from "./talk.js";
import { listen } from "./keys.js";
import { banner, calm, drawLink, link, notify, remark, say, sayNow, told } from "./notices.js";
import { palette } from "./palette.js";
import { Panel } from "./panel.js";
import { Params } from "./params.js";
import { cost, count, many, oneLine, plain } from "./text.js";
import { spentIn } from "./trace.js";

const HEALTH_MS = 15_000;
const NARROW = matchMedia("(max-width: 1100px)");

const prompt = byId("prompt");
let tools = { tools: [], servers: [] };

/** Says why something was not done. That the service is away is said by `link` already. */
function failed(error) {
  if (error instanceof Unreachable) return;
  if (!(error instanceof Refused)) throw error;
  if (error.status === 401) banner("This service requires a token.", button("Enter token", { class: "link", onclick: () => location.reload() }));
  else remark(error.message);
}

/** A deed of a person; what goes wrong is said on the page. */
const deed = (work) => async (...given) => {
  try {
    return await work(...given);
  } catch (error) {
    return failed(error);
  }
};

// The conversation --------------------------------------------------------------------------------------------------------

const page = {
  changed() {
    drawTitle();
    byId("stop").hidden = !talk.isLive;
    byId("send").hidden = talk.isLive;
    byId("export").hidden = !talk.views.length;
    drawSpent();
    drawBranches();
    list.mark(talk.id);
    const hash = talk.id && (talk.session || talk.isLive) ? `#${encodeURIComponent(talk.id)}` : "";
    if (hash && location.hash !== hash) history.pushState(null, "", hash);
    panel.draw();
  },
  heard(event, view) {
    link.found();
    HEARD[event.type]?.(event, view);
  },
  lost: (seconds, retry) => link.lost(seconds, retry),
  found: () => link.found(),
  failed,
  pinned: (isPinned) => (byId("latest").hidden = isPinned || !talk.views.length),
  standing(state) {
    const act = (words) => button(words, { class: "primary", onclick: deed(() => goOn()) });
    if (state === "interrupted") banner("The last run of this conversation was interrupted.", act("Continue"));
    else if (state === "running" && !talk.isLive) banner("Another process is running this conversation.");
    else if (!link.isLost) calm();
    if (talk.asking.length) sayNow(`Waiting for approval: ${many(talk.asking.length, "call")}.`);
  },
  unused: () => told(UNUSED),
  answered: deed(async (wasLive) => {
    list.load();
    drawTitle();
    // The service goes on with a paused conversation when it is answered; from here on it is watched again.
    if (!wasLive) await talk.again(true);
  }),
  refused(error, given) {
    if (given) composer.restore(given);
    failed(error);
  },
  /** Nothing runs any more: what waited is sent, unless somebody has to look at what happened first. */
  rested(event) {
    const { reply } = event;
    if (reply?.approvals?.length) return;
    if (!reply || reply.finish_reason === "cancelled" || talk.session?.state === "interrupted") composer.unqueue();
    else if (composer.queue.length) talk.send(composer.next(), choice.value);
  },
  deleted() {
    const typed = prompt.value;
    fresh();
    remark("That conversation was deleted.");
    if (typed) starter(typed);
    list.load();
  },
  fork: deed(async (id, exchange) => {
    const { session } = await api.fork(id, { after: exchange });
    await branch(id, session);
  }),
  /** A changed message is sent in a fork: the conversation as it was stays. */
  edit: deed(async (view, given) => {
    const { id } = talk;
    if (!id || !view.exchange) return;
    const { session } = await api.fork(id, { before: view.exchange });
    await branch(id, session);
    talk.send(given, choice.value);
  }),
  undo: deed(() => undo()),
  retry: deed((view) => retry(view)),
  goOn: () => goOn(),
  look: (view) => panel.look(view),
};

const HEARD = {
  run_started: () => list.load(),
  approval_needed: ({ call }, view) => {
    list.load();
    drawTitle();
    // Events that are read again tell of calls that were answered long ago.
    setTimeout(() => {
      if (!view.asking.some((card) => card.call.id === call.id)) return;
      sayNow(`${plain(call.name)} needs approval. Press n to go there.`);
      notify("A call needs your approval.");
    }, 100);
  },
  question_asked: ({ id, server }, view) =>
    setTimeout(() => {
      if (!view.questions.has(id)) return;
      sayNow(`The server ${plain(server)} asks you something.`);
      notify("A server asks you something.");
    }, 100),
  call_finished: ({ call, result }) => say(`${plain(call.name)}: ${result.status.replace("_", " ")}.`),
  run_ended: ({ reply }, view) => {
    say(`Answer: ${oneLine(view.text || reply.text || reply.finish_reason, 600)}`);
    if (!reply.approvals?.length) notify("The answer is there.");
    list.load();
  },
  error: ({ message }) => {
    sayNow(plain(message));
    list.load();
  },
};

const list = new SessionList(byId("sessions"), byId("sessions-status"), byId("find"), {
  failed,
  rename: deed(async (session) => {
    const title = await askText("Rename this conversation", "New title", { value: session.title || "", most: 80, yes: "Rename" });
    if (!title || title === session.title) return;
    await api.rename(session.id, title);
    if (session.id === talk.id && talk.session) {
      talk.session.title = title;
      drawTitle();
    }
    await list.load();
  }),
  remove: deed(async (session) => {
    if (!(await confirm("Delete this conversation?", [`“${oneLine(session.title || "Untitled", 80)}” will be deleted permanently.`], "Delete"))) return;
    await api.remove(session.id);
    if (session.id === talk.id) fresh();
    await list.load();
  }),
});
const talk = new Talk(byId("talk"), byId("scroll"), page);
const panel = new Panel(talk, NARROW, {
  failed,
  moved: shade,
  tools: (found) => {
    tools = found;
    welcome();
  },
});
const composer = new Composer({ field: prompt, tray: byId("tray"), input: byId("files") }, { failed: remark, uploads: () => !models.value.provider });
const params = new Params();
const models = new Choice(byId("provider"), byId("model"), () => askText("Another model", "Name, as the provider spells it"));
/** What the next request names beside the message. */
const choice = {
  get value() {
    return { ...models.value, ...params.value };
  },
};

function drawTitle() {
  byId("title").textContent = plain(talk.title);
  const waits = talk.asking.length ? `(${talk.asking.length}) ` : "";
  document.title = talk.id ? `${waits}${oneLine(talk.title, 60)} · callgate` : "callgate";
}

/** Where a conversation was branched from, and what was branched from it. */
function drawBranches() {
  const { all } = branches;
  const to = (id, words) => el("a", { href: `/#${encodeURIComponent(id)}` }, oneLine(words, 60));
  const origin = all[talk.id];
  const made = Object.entries(all).filter(([, { from }]) => talk.id && from === talk.id);
  refill(byId("branches"), origin && ["branch of ", to(origin.from, origin.fromTitle)], origin && made.length > 0 && " · ", made.length > 0 && ["branches: ", made.map(([id, { title }], at) => [at > 0 && ", ", to(id, title)])]);
}

function drawSpent() {
  const { usage, cost: spent } = spentIn(talk.session);
  const words = [usage.total_tokens && `${count(usage.total_tokens)} tokens`, typeof spent === "number" && `cost ${cost(spent)}`].filter(Boolean);
  byId("spent").textContent = words.join(" · ");
}

function fresh() {
  panel.looked = null;
  talk.reset(null);
  composer.follow(null);
  banner("");
  welcome();
  if (location.hash) history.pushState(null, "", location.pathname + location.search);
  page.changed();
  panel.draw();
  if (!NARROW.matches) prompt.focus();
}

function welcome() {
  if (!talk.views.length && !talk.id) talk.welcome(tools.tools, starter);
}

/** Puts a question into the field, where it can still be changed. */
function starter(words) {
  prompt.value = words;
  composer.changed();
  prompt.focus();
}

/** Opens a fork, under a title of its own and with the way back. */
async function branch(from, to) {
  const title = talk.title.replace(/ \(branch(?: \d+)?\)$/, "");
  const taken = list.sessions.filter((each) => (each.title || "").startsWith(`${title} (branch`)).length;
  const own = oneLine(`${oneLine(title, 66)} (branch${taken ? ` ${taken + 1}` : ""})`, 80);
  await api.rename(to, own).catch(() => null);
  branches.add(to, { from, title: own, fromTitle: talk.title });
  list.load();
  await go(to);
  say("This is a branch of the previous conversation.");
}

const go = deed(async (id) => {
  panel.looked = null;
  closeSidebar();
  banner("");
  composer.follow(id);
  try {
    await talk.open(id);
  } catch (error) {
    if (error.status !== 404) throw error;
    fresh();
    remark("That conversation no longer exists.");
  }
  // What waited for a run that has ended meanwhile can be read and changed before it is sent.
  if (!talk.isLive && talk.session?.state !== "waiting") composer.unqueue();
  composer.sayMissing();
});

function submit(event) {
  event?.preventDefault();
  if (composer.isReading) return;
  const given = composer.take();
  if (!given) return;
  if (talk.isLive) {
    composer.wait(given);
    say("The message is sent when the run ends.");
    return;
  }
  if (!talk.views.length) byId("talk").replaceChildren();
  banner("");
  panel.looked = null;
  talk.send(given, choice.value);
  composer.name(talk.id);
  say("Sent.");
}

function goOn() {
  banner("");
  talk.goOn(choice.value);
}

const stop = deed(async () => {
  if (!talk.isLive || !talk.id) return;
  byId("stop").disabled = true;
  try {
    await api.cancel(talk.id);
  } finally {
    byId("stop").disabled = false;
  }
});

/** What an undo did to files, and what it could not do, in words. */
const undone = ({ files = [], notes = [] }) => [...files, ...notes].map((each) => oneLine(typeof each === "string" ? each : (each.message ?? each.path ?? ""), 200));

async function undo() {
  if (talk.isLive || !talk.id || !talk.views.length) return;
  const { said, parts, exchange } = (await talk.settled()) ?? {};
  if (!exchange || talk.isLive || document.querySelector("dialog[open]")) return;
  const text = [`“${oneLine(said ?? "", 120)}” and everything after it will be removed.`, "Files written by its calls will be restored."];
  if (!(await confirm("Undo the last exchange?", text, "Undo"))) return;
  const done = undone(await api.undo(talk.id, [exchange]));
  await talk.again();
  composer.restore(message(said, parts));
  prompt.focus();
  told(done.length ? `Undone. ${done.join(" ")}` : "Undone; no file was changed.");
  list.load();
}

/** Sends the message of an exchange again, in its place. What its calls wrote is restored first, so that is asked about. */
async function retry(view) {
  if (talk.isLive || !talk.id || !view.exchange) return;
  const { said, parts } = view;
  const text = [`${many(view.cards.size, "call")} of this exchange will be undone as far as files are concerned, and made again if the model wants to.`];
  if (view.cards.size && !(await confirm("Send the message again?", text, "Send again"))) return;
  if (!prompt.value) composer.keep(said); // somebody may close the page between the two requests
  const done = undone(await api.undo(talk.id, [view.exchange]));
  await talk.again();
  banner("");
  if (done.length) told(`Sent again. ${done.join(" ")}`);
  talk.send(message(said, parts), choice.value);
  composer.changed();
}

/** The conversation as a file. */
function exportTalk() {
  if (!talk.session) return;
  const url = URL.createObjectURL(new Blob([exportText(talk.session)], { type: "text/markdown" }));
  const name = talk.title.replace(/[^\p{L}\p{N}._-]+/gu, "-").replace(/^-+|-+$/g, "").slice(0, 60) || "conversation";
  el("a", { href: url, download: `${name}.md` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

function openSidebar() {
  document.body.classList.add("with-sidebar");
  byId("sidebar-open").setAttribute("aria-expanded", "true");
  shade();
}

function closeSidebar() {
  if (byId("sidebar").contains(document.activeElement) && document.body.classList.contains("with-sidebar")) byId("sidebar-open").focus();
  document.body.classList.remove("with-sidebar");
  byId("sidebar-open").setAttribute("aria-expanded", "false");
  shade();
}

function shade() {
  byId("shade").hidden = !(NARROW.matches && (panel.isOpen || document.body.classList.contains("with-sidebar")));
}

// The frame ---------------------------------------------------------------------------------------------------------------

function stepTurn(by) {
  const nodes = talk.views.map((view) => view.node);
  const at = nodes.findIndex((node) => node.contains(document.activeElement));
  const next = nodes[at < 0 ? nodes.length - 1 : Math.max(0, Math.min(nodes.length - 1, at + by))];
  if (!next) return;
  next.tabIndex = -1;
  next.focus({ preventScroll: true });
  next.scrollIntoView({ block: "start" });
}

function nextAsked() {
  const forms = talk.asking.map((card) => card.form);
  const at = forms.findIndex((form) => form.node.contains(document.activeElement));
  const next = forms[(at + 1) % forms.length];
  next?.node.focus();
  next?.node.scrollIntoView({ block: "nearest" });
}

function onAsked(key) {
  const card = talk.asking.find((each) => each.node.contains(document.activeElement));
  return card ? card.form.press(key) : false;
}

function toggleCalls() {
  const view = talk.views.find((each) => each.node.contains(document.activeElement)) ?? talk.last;
  const cards = [...(view?.cards.values() ?? [])];
  const isOpen = cards.some((card) => card.body.hidden);
  for (const card of cards) card.open(isOpen);
}

function escape() {
  if (document.querySelector("dialog[open]")) return;
  if (document.body.classList.contains("with-sidebar")) closeSidebar();
  else if (NARROW.matches && panel.isOpen) panel.open(false);
  else if (document.activeElement === prompt) byId("scroll").focus();
  else document.activeElement?.blur();
}

function bind() {
  refill(byId("new"), icon("plus"), el("span", {}, "New conversation"));
  refill(byId("send"), icon("send"), el("span", {}, "Send"));
  refill(byId("stop"), icon("stop"), el("span", {}, "Stop"));
  refill(byId("sidebar-open"), icon("menu"));
  refill(byId("sidebar-close"), icon("close"));
  refill(byId("panel-open"), icon("panel"));
  refill(byId("panel-close"), icon("close"));
  refill(byId("attach"), icon("attach"));
  refill(byId("export"), icon("save"));
  drawTheme(byId("theme"));
  const clicks = {
    new: () => {
      closeSidebar();
      fresh();
    },
    stop,
    theme: () => nextTheme(byId("theme")),
    latest: () => talk.toEnd(),
    shade: () => {
      closeSidebar();
      panel.open(false);
    },
    "sidebar-open": () => {
      openSidebar();
      byId("find").focus();
    },
    "sidebar-close": closeSidebar,
    "panel-open": () => panel.open(!panel.isOpen),
    "panel-close": () => panel.open(false),
    "help-open": () => help(settings),
    attach: () => byId("files").click(),
    export: exportTalk,
  };
  for (const [id, act] of Object.entries(clicks)) byId(id).addEventListener("click", act);
  byId("composer").addEventListener("submit", submit);
  const main = byId("main");
  main.addEventListener("dragover", (event) => event.dataTransfer?.types.includes("Files") && event.preventDefault());
  main.addEventListener("drop", (event) => composer.receive(event, event.dataTransfer));
  prompt.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) submit(event);
  });
  NARROW.addEventListener("change", () => {
    closeSidebar();
    panel.open(!NARROW.matches && settings.panel, false);
  });
  addEventListener("popstate", fromAddress); // also when a link or a person changes what is behind the #
  document.addEventListener("visibilitychange", () => health());
  addEventListener("resize", () => panel.draw());
}

function fromAddress() {
  let id = "";
  try {
    id = decodeURIComponent(location.hash.slice(1));
  } catch {
    // An address that is no address is no conversation.
  }
  if (id === (talk.id ?? "")) return null;
  return id ? go(id) : fresh();
}

/** What the palette offers of this page. */
const deeds = () =>
  [
    { words: "New conversation", key: "c", act: fresh },
    talk.isLive && { words: "Stop the run", key: "s", act: stop },
    talk.asking.length > 0 && { words: "Go to the call that needs approval", key: "n", act: nextAsked },
    !talk.isLive && talk.last?.exchange && { words: "Regenerate the last answer", act: () => page.retry(talk.last) },
    !talk.isLive && talk.views.length > 0 && { words: "Undo the last exchange", key: "u", act: () => page.undo() },
    { words: "Attach files", act: () => byId("files").click() },
    { words: "Settings: model, instructions, approval", act: () => byId("params-open").click() },
    { words: "Timeline", key: "t", act: () => showPanel("run") },
    { words: "Tools", act: () => showPanel("tools") },
    talk.views.length > 0 && { words: "Save the conversation as a file", act: exportTalk },
    talk.views.length > 0 && { words: "Print", act: () => globalThis.print() },
    { words: "Theme: light, dark, system", key: "l", act: () => nextTheme(byId("theme")) },
    { words: "Keyboard shortcuts", key: "?", act: () => help(settings) },
  ].filter(Boolean);

function showPanel(name) {
  panel.open(true);
  panel.select(name);
}

document.addEventListener("keydown", (event) => {
  if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey) return;
  event.preventDefault();
  palette(deeds(), go);
});

listen({
  Escape: escape,
  "?": () => void help(settings),
  i: () => prompt.focus(),
  "/": () => prompt.focus(),
  n: nextAsked,
  s: () => void stop(),
  j: () => stepTurn(1),
  k: () => stepTurn(-1),
  o: toggleCalls,
  u: () => void page.undo(),
  c: fresh,
  l: () => nextTheme(byId("theme")),
  f: () => {
    if (NARROW.matches) openSidebar();
    byId("find").focus();
  },
  t: () => {
    if (!panel.isOpen) panel.open(true);
    else panel.select(panel.shows("run") ? "tools" : "run");
  },
  y: () => onAsked("y"),
  a: () => onAsked("a"),
  e: () => onAsked("e"),
  d: () => onAsked("d"),
});

// The service -------------------------------------------------------------------------------------------------------------

let wasThere = true;
watchers.add((isThere) => {
  if (isThere === wasThere) return;
  wasThere = isThere;
  if (isThere) {
    link.found();
    load();
    if (talk.id && !talk.isLive) deed(() => talk.again())();
  } else if (!talk.isLive) link.lost(HEALTH_MS / 1000, () => api.health().catch(() => null));
});

async function health() {
  if (document.hidden || talk.isLive) return;
  try {
    const { status } = await api.health();
    drawLink(status === "healthy" ? "ok" : "degraded", status === "healthy" ? "" : `The service is ${plain(status)}`);
  } catch (error) {
    if (error.status) drawLink("degraded", error.status === 503 ? "The service is down" : "The service has a problem");
    else link.lost(HEALTH_MS / 3000, () => health());
    return;
  }
  list.load();
}

/** What the frame shows: lists that may be loaded again at any time. */
const load = deed(async () => {
  const [offered] = await Promise.all([api.models(), list.load(), panel.loadTools()]);
  models.offer(offered);
  params.offer(offered);
});

ask.token = askToken;
bind();
panel.open(!NARROW.matches && settings.panel, false);
if (location.hash.length > 1) await Promise.all([load(), fromAddress()]);
else {
  await load();
  fresh();
  composer.sayMissing();
}
forgetEarly();
setInterval(() => health(), HEALTH_MS);
// While the service is away it is asked more often: it should be found again soon.
setInterval(() => !wasThere && health(), HEALTH_MS / 3);
document.documentElement.dataset.ready = "yes";
