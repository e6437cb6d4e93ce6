// Settings of the next messages: what is asked about, the system text, and what the model is asked with. They are kept in this
// browser, but for the approval mode: that one is forgotten with the page, so that nothing runs unasked on another day.

import { byId, icon, refill } from "./dom.js";
import { settings } from "./settings.js";

const FIELDS = ["approval-mode", "system", "temperature", "thinking", "mode"];
const MODES = ["auto", "native", "prompted"];

export class Params {
  constructor() {
    this.fields = Object.fromEntries(FIELDS.map((id) => [id, byId(id)]));
    this.opener = byId("params-open");
    this.first = {};
    const dialog = byId("params");
    this.opener.addEventListener("click", () => dialog.showModal());
    byId("params-reset").addEventListener("click", () => this.put({}));
    dialog.addEventListener("close", () => this.changed());
    for (const field of Object.values(this.fields)) field.addEventListener("change", () => this.changed());
    const notify = byId("notify");
    notify.checked = settings.notify;
    notify.addEventListener("change", async () => {
      settings.notify = notify.checked && (await globalThis.Notification?.requestPermission()) === "granted";
      notify.checked = settings.notify;
    });
    refill(this.opener, icon("sliders"));
    this.put(settings.params);
  }

  /** `first` is what the service does if nothing is named. */
  offer({ default: first = {} }) {
    this.first = first;
    if (!settings.params.mode) this.fields.mode.value = first.mode || "auto";
    this.draw();
  }

  put({ system = "", temperature = "", thinking = "", mode = "" }) {
    Object.assign(this.fields.system, { value: system });
    Object.assign(this.fields.temperature, { value: temperature });
    Object.assign(this.fields.thinking, { value: thinking });
    this.fields.mode.value = MODES.includes(mode) ? mode : this.first.mode || "auto";
    this.fields["approval-mode"].value = "";
    this.changed();
  }

  changed() {
    const { system, temperature, thinking, mode } = this.fields;
    const own = mode.value === (this.first.mode || "auto") ? "" : mode.value;
    settings.params = { system: system.value, temperature: temperature.value, thinking: thinking.value, mode: own };
    this.draw();
  }

  /** What a request names of it: nothing that is left as it is. */
  get value() {
    const { system, temperature, thinking, mode } = this.fields;
    const approval = this.fields["approval-mode"].value;
    const warmth = temperature.value !== "" && temperature.checkValidity() ? { temperature: Number(temperature.value) } : {};
    const model = { ...warmth, ...(thinking.value && { thinking: thinking.value }) };
    return {
      ...(mode.value !== (this.first.mode || "auto") && { mode: mode.value }),
      ...(approval && { approval_mode: approval }),
      ...(system.value.trim() && { system: system.value.trim() }),
      ...(Object.keys(model).length && { settings: model }),
    };
  }

  /** The button says what differs from the usual. */
  draw() {
    const { settings: model = {}, system, mode, approval_mode: approval } = this.value;
    const words = [approval && `approval ${approval}`, system && "system text", model.temperature !== undefined && `temperature ${model.temperature}`, model.thinking && `thinking ${model.thinking}`, mode];
    const said = words.filter(Boolean).join(", ");
    this.opener.title = said ? `Settings: ${said}` : "Settings for your next messages";
    this.opener.setAttribute("aria-label", this.opener.title);
    this.opener.classList.toggle("changed", Boolean(said));
  }
}
