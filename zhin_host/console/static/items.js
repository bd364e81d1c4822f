// Items: what happens within a turn, each as a piece of the page that is changed in place when its item changes.

import { element, fill, setText, text } from "./element.js";
import { count, duration, oneLine, pretty, visible } from "./format.js";
import { outcomeText, requestCard, titleOf } from "./requests.js";
import { rawButton, valueView } from "./values.js";

const STATUSES = {
  running: "running",
  parked: "waits",
  completed: "done",
  failed: "failed",
  denied: "denied",
  cancelled: "cancelled",
};

/** The view of an item: `root`, and `update()` to be called when the item's version or discardedAt has changed. */
export function itemView(sessionId, item) {
  const made = VIEWS[item.kind](sessionId, item);
  if (item.discardedAt === null) return { ...made, isDiscarded: false };
  const root = element(
    "details",
    { class: "discarded" },
    element("summary", {}, `Discarded ${DISCARDED[item.kind]}`, element("span", { class: "hint" }, hintOf(item))),
    element("del", {}, made.root),
  );
  return { root, update: made.update, isDiscarded: true };
}

const DISCARDED = { text: "text", reasoning: "reasoning", action: "action", custom: "event" };

function hintOf(item) {
  const from = item.index;
  const to = item.places?.at(-2) ?? item.index;
  const events = from === to ? `event ${from}` : `events ${from} to ${to}`;
  return ` — ${events}; does not count since event ${item.discardedAt}, when the turn was driven again`;
}

const VIEWS = {
  text: (sessionId, item) => running(item, "p", "text"),
  reasoning(sessionId, item) {
    const body = running(item, "p", "text");
    const name = element("summary", {});
    const root = element("details", { class: "reasoning" }, name, body.root);
    const update = () => {
      setText(name, item.isClosed ? "Reasoning" : "Reasoning …");
      body.update();
    };
    update();
    return { root, update };
  },
  action: actionView,
  request: requestView,
  custom(sessionId, item) {
    const content = () => [valueView(item.data), raws(sessionId, item.index)];
    return { root: folded("custom", [element("code", {}, item.type), preview(item.data)], content), update() {} };
  },
  checkpoint(sessionId, item) {
    const content = () => [valueView(item.state), raws(sessionId, item.index)];
    return { root: folded("checkpoint", ["Checkpoint saved", preview(item.state)], content), update() {} };
  },
};

/** Text that grows: one text node, to which only what is new is appended. */
function running(item, tag, name) {
  const node = text("");
  const root = element(tag, { class: name }, node);
  let shown = 0;
  const update = () => {
    if (item.text.length < shown) {
      node.data = ""; // what was said was split where it stopped to count
      shown = 0;
    }
    if (item.text.length === shown) return;
    node.appendData(visible(item.text.slice(shown)));
    shown = item.text.length;
  };
  update();
  return { root, update };
}

function actionView(sessionId, item) {
  const name = element("code", { class: "tool" }, item.toolName);
  const status = element("span", { class: "chip" });
  const took = element("span", { class: "took" });
  const line = preview(item.input);
  const root = folded("action", [name, line, took, status], () => actionBody(sessionId, item));
  const update = () => {
    const shown = item.status === "running" && item.waits > 0 ? "parked" : item.status;
    status.dataset.status = shown;
    setText(status, STATUSES[shown] ?? shown);
    setText(took, item.durationMs === null ? retriesText(item) : duration(item.durationMs));
    root.refill();
  };
  update();
  return { root, update };
}

function retriesText(item) {
  return item.retries.length === 0 ? "" : `try ${item.retries.at(-1).attempt + 1}`;
}

function actionBody(sessionId, item) {
  const parts = [element("p", { class: "label" }, "Input"), valueView(item.input)];
  for (const retry of item.retries) {
    const wait = `Attempt ${retry.attempt} failed; tried again after ${duration(retry.delayMs)}`;
    parts.push(element("p", { class: "label" }, wait), valueView(retry.error));
  }
  if (item.error !== undefined) parts.push(element("p", { class: "label" }, "Error"), valueView(item.error));
  if (item.output !== undefined) parts.push(element("p", { class: "label" }, "Output"), valueView(item.output));
  if (item.resultIndex === null) parts.push(element("p", { class: "hint" }, "No result yet."));
  parts.push(raws(sessionId, item.index, ...item.retries.map((retry) => retry.index), item.resultIndex));
  return parts;
}

function requestView(sessionId, item) {
  const root = element("div", { class: "request-place" });
  let isOpen = null;
  const update = () => {
    const wasOpen = isOpen;
    isOpen = item.outcome === null;
    if (wasOpen === isOpen) return;
    if (isOpen) fill(root, requestCard(sessionId, item.request, item.at));
    else close(root, closedRequest(sessionId, item));
  };
  update();
  return { root, update };
}

/** Put the outcome in place of the card, and the focus with it if the card had it. */
function close(root, line) {
  const hadFocus = root.contains(document.activeElement);
  fill(root, line);
  if (hadFocus) line.querySelector("summary").focus();
}

function closedRequest(sessionId, item) {
  const content = () => [
    item.request.prompt === undefined ? null : element("p", {}, item.request.prompt),
    item.request.args === undefined ? null : element("p", { class: "label" }, "With these arguments"),
    item.request.args === undefined ? null : valueView(item.request.args),
    raws(sessionId, item.index, item.answer.index),
  ];
  const line = [element("strong", {}, titleOf(item.request)), element("span", { class: "outcome" }, outcomeText(item))];
  const root = folded("answered", line, content);
  root.dataset.outcome = item.outcome;
  return root;
}

/** A line that opens; its content is made when it is opened first. `root.refill()` makes it anew if it is there. */
function folded(name, line, content) {
  const body = element("div", { class: "body" });
  const root = element("details", { class: `line ${name}` }, element("summary", {}, ...line), body);
  let isMade = false;
  root.refill = () => isMade && fill(body, ...content());
  root.addEventListener("toggle", () => {
    if (root.open && !isMade) {
      isMade = true;
      root.refill();
    }
  });
  return root;
}

function preview(value) {
  return element("span", { class: "preview" }, value === undefined ? "" : oneLine(pretty(value), 160));
}

function raws(sessionId, ...indexes) {
  const known = indexes.filter((index) => index !== null && index !== undefined);
  const buttons = known.flatMap((index) => [rawButton(sessionId, index), " "]);
  return element("p", { class: "fine" }, `Raw ${count(known.length, "event").replace(/^\d+ /, "")} `, ...buttons);
}
