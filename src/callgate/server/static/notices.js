// What the page says of itself: to those who see it, to those who hear it, and whether the service is there.

import { button, byId, el, icon, refill } from "./dom.js";
import { settings } from "./settings.js";

/** Said aloud when there is a pause. */
export const say = (words) => (byId("say").textContent = words);
/** Said aloud at once. */
export const sayNow = (words) => (byId("say-now").textContent = words);

/** A sentence above the conversation, with what can be done about it; none takes it away. */
export const banner = (words, ...actions) => put("warning", words, actions);

function put(kind, words, actions) {
  const box = byId("banner");
  box.hidden = !words;
  box.dataset.kind = kind;
  refill(box, words ? [icon(kind), el("p", {}, words), actions] : []);
}

const close = () => button("Close", { class: "link", onclick: () => banner("") });
/** A sentence that stays until it is closed. */
export const remark = (words) => banner(words, close());
/** The same of something that went well. */
export const told = (words) => put("info", words, [close()]);
/** Takes away what was said of a state that is over; what somebody did is theirs to close. */
export const calm = () => byId("banner").dataset.kind !== "info" && banner("");

/** A note of the system for somebody who looks elsewhere and asked for it. It names nothing of what was said. */
export function notify(words) {
  if (!settings.notify || !document.hidden || globalThis.Notification?.permission !== "granted") return;
  const note = new Notification("callgate", { body: words, tag: "callgate", icon: "/static/icon.svg" });
  note.addEventListener("click", () => {
    globalThis.focus();
    note.close();
  });
}

/** How the service is: `ok`, `degraded` or `lost`. */
export function drawLink(state, words = "") {
  const box = byId("link");
  if (box.dataset.state === state && box.textContent === words) return;
  box.dataset.state = state;
  refill(box, state === "ok" ? null : [icon("warning"), el("span", {}, words)]);
}

let countdown = 0;

/** The connection: lost, with a count to the next attempt, and found again. */
export const link = {
  isLost: false,
  lost(seconds, retry) {
    this.isLost = true;
    clearInterval(countdown);
    const until = Date.now() + seconds * 1000;
    const draw = () => {
      const left = Math.max(0, Math.ceil((until - Date.now()) / 1000));
      drawLink("lost", "No connection");
      banner(`Connection lost. Reconnecting${left ? ` in ${left} s` : ""}.`, button("Try now", { class: "link", onclick: retry }));
    };
    draw();
    countdown = setInterval(draw, 1000);
  },
  found() {
    if (!this.isLost) return;
    this.isLost = false;
    clearInterval(countdown);
    drawLink("ok");
    banner("");
    say("Reconnected.");
  },
};
