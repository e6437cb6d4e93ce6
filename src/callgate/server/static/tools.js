// Tools and servers: where each tool comes from, what permission says of it, and what its declaration lost on the way.

import { el, icon, refill } from "./dom.js";
import { textView } from "./bigtext.js";
import { many, oneLine, plain, shown } from "./text.js";

const PERMISSIONS = { allow: ["finished", "runs"], ask: ["awaiting", "asks"], deny: ["denied", "denied"] };
const SERVERS = {
  ready: ["finished", "ready"],
  starting: ["proposed", "starting"],
  unavailable: ["failed", "unavailable"],
};

const badge = ([picture, words], state) => el("span", { class: "state", "data-state": state || picture }, icon(picture), el("span", {}, words));

// What a declaration may lose without a change of what the tool takes: the values are still filled in and checked here.
const MINOR = new Set(["default", "title", "example", "examples", "deprecated", "$schema", "$comment"]);
const isMinor = (loss) => MINOR.has(loss.keyword);
const lossesOf = (tool) => (tool.losses || []).filter((loss) => !isMinor(loss));

/** The panel of `{tools, servers}`. */
export function drawTools(place, { tools = [], servers = [] }) {
  const groups = new Map();
  for (const tool of tools) {
    const source = tool.source || "function";
    if (!groups.has(source)) groups.set(source, []);
    groups.get(source).push(tool);
  }
  const losses = tools.reduce((sum, tool) => sum + lossesOf(tool).length, 0);
  refill(
    place,
    el("p", { class: "sum" }, `${many(tools.length, "tool")}${servers.length ? `, ${many(servers.length, "server")}` : ""}${losses ? `, ${many(losses, "loss", "losses")}` : ""}.`),
    servers.length ? [el("h3", {}, "Servers"), el("ul", { class: "servers" }, servers.map(serverView))] : null,
    [...groups].map(([source, found]) => [el("h3", {}, shown(oneLine(source, 80))), el("ul", { class: "toollist" }, found.map(toolView))]),
    !tools.length && el("p", { class: "quiet" }, "No tools are declared: the model can only answer in text."),
  );
}

function serverView(server) {
  const count = Array.isArray(server.tools) ? server.tools.length : server.tools;
  return el(
    "li",
    {},
    el("p", { class: "row" }, el("strong", {}, shown(oneLine(server.name, 80))), badge(SERVERS[server.state] || ["unknown", plain(server.state || "unknown")])),
    el("p", { class: "quiet" }, shown([server.kind, typeof count === "number" && many(count, "tool")].filter(Boolean).join(" · "))),
    server.error && el("p", { class: "failed-line" }, shown(oneLine(server.error, 400))),
  );
}

function toolView(tool) {
  const verdict = tool.permission || "ask";
  const losses = lossesOf(tool);
  const minor = (tool.losses || []).filter(isMinor);
  return el(
    "li",
    {},
    el(
      "details",
      {},
      el(
        "summary",
        {},
        el("span", { class: "name" }, shown(oneLine(tool.name, 100))),
        losses.length ? el("span", { class: "state", "data-state": "warning" }, icon("warning"), el("span", {}, many(losses.length, "loss", "losses"))) : null,
        badge(PERMISSIONS[verdict] || ["unknown", plain(verdict)], verdict),
      ),
      el("p", {}, shown(tool.description || "No description.")),
      el("p", { class: "quiet" }, tool.read_only ? "Read-only." : "May have side effects.", " ", shown(tool.permission_reason || "")),
      losses.length ? [el("h4", {}, "Lost in the declaration"), el("ul", { class: "losses" }, losses.map(lossView))] : null,
      minor.length ? el("p", { class: "quiet" }, `Not in the declaration, and not needed there: ${[...new Set(minor.map(({ keyword }) => keyword))].join(", ")}.`) : null,
      el("h4", {}, "Arguments"),
      textView(JSON.stringify(tool.schema ?? {}, null, 2), `Schema of ${plain(tool.name)}`),
    ),
  );
}

function lossView(loss) {
  if (typeof loss === "string") return el("li", {}, shown(loss));
  return el("li", {}, el("code", {}, shown(loss.keyword || "")), " at ", el("code", {}, shown(loss.pointer || "/")), ": ", shown(loss.reason || ""), loss.instead ? [". Instead: ", ...shown(loss.instead)] : null);
}
