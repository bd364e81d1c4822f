// Values: JSON of agents and tools as a person reads it, and the dialogs that look at events.

import { button, element, fill } from "./element.js";
import { glance } from "./follower.js";
import { parse, pretty } from "./format.js";

const CHARACTERS_MAX = 20_000; // more of one value is shown when asked for

/** A value: fields one by one, text as text, everything else as JSON. */
export function valueView(value) {
  if (value === undefined) return element("p", { class: "hint" }, "Nothing.");
  if (isObject(value) && Object.keys(value).length > 0) {
    const rows = Object.entries(value).map(([name, one]) => [element("dt", {}, name), element("dd", {}, scalar(one))]);
    return element("dl", { class: "fields" }, ...rows.flat());
  }
  return scalar(value);
}

function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function scalar(value) {
  const isText = typeof value === "string" && value.includes("\n");
  const shown = isText ? value : pretty(value);
  const made = element("pre", { class: isText ? "value as-text" : "value" }, shown.slice(0, CHARACTERS_MAX));
  if (shown.length <= CHARACTERS_MAX) return made;
  const more = button(`Show all ${shown.length.toLocaleString()} characters`, () => {
    fill(made, shown);
    more.remove();
    made.tabIndex = -1;
    made.focus();
  });
  return element("div", {}, made, more);
}

/** A button that opens the raw event of an index. */
export function rawButton(sessionId, index) {
  return button(`#${index}`, () => showEvent(sessionId, index), { class: "raw", "aria-label": `Raw event ${index}` });
}

/** The dialog with one event as it stands in the log, and ways to its neighbours. */
export function showEvent(sessionId, index) {
  let at = index;
  let looking = new AbortController();
  const place = element("input", { type: "number", min: "0", step: "1", id: "look-at", inputmode: "numeric" });
  const body = element("div", { class: "event" });
  const load = async () => {
    looking.abort();
    looking = new AbortController();
    const mine = looking.signal;
    place.value = String(at);
    try {
      const [line] = await glance(sessionId, at, (lines) => lines.length > 0, mine);
      if (!mine.aborted) fill(body, ...eventView(line, at));
    } catch (error) {
      if (!mine.aborted) fill(body, element("p", { class: "wrong" }, error.message));
    }
  };
  const go = (to) => {
    at = Math.max(0, Math.floor(to) || 0);
    load();
  };
  place.addEventListener("change", () => go(Number(place.value)));
  const head = element(
    "div",
    { class: "row" },
    element("label", { for: "look-at" }, "Event"),
    place,
    button("Previous", () => go(at - 1)),
    button("Next", () => go(at + 1)),
  );
  openLook("Raw event", head, body);
  load();
}

function eventView(line, at) {
  if (line === undefined) return [element("p", { class: "hint" }, `There is no event ${at} yet.`)];
  const event = parse(line);
  return [
    element("p", {}, element("strong", {}, event.type), " at ", new Date(event.timestamp).toISOString()),
    element("h3", {}, "data"),
    element("pre", { class: "value", tabindex: "0" }, pretty(event.data)),
    element("h3", {}, "The line, as it stands in the log"),
    element("pre", { class: "value line", tabindex: "0" }, line),
  ];
}

/** Open the dialog for a look at something. */
export function openLook(title, ...children) {
  const dialog = document.getElementById("look");
  const close = button("Close", () => dialog.close(), { class: "close" });
  fill(dialog, element("div", { class: "look-head" }, element("h2", { id: "look-title" }, title), close), ...children);
  if (!dialog.open) dialog.showModal();
}
