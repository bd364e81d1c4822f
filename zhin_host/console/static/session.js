// Session: one session live, from its first event, over every break.

import { get, post } from "./api.js";
import { Announcer } from "./announce.js";
import { Composer } from "./composer.js";
import { button, element, fill, setText } from "./element.js";
import { Follower } from "./follower.js";
import { count, messageText, shortId } from "./format.js";
import { emptyView, isOver, openTurn, reduce } from "./reducer.js";
import { agoTime, titleOf as requestTitleOf } from "./requests.js";
import { STATUS_WORDS, statusOf } from "./status.js";
import { titleOf, TurnView } from "./turn.js";
import { openLook, rawButton, showEvent, valueView } from "./values.js";
import { verdictView } from "./verdict.js";

const BOTTOM_PX = 80; // so near to it counts as at the bottom
const CLOCK_MS = 1000;

const STATES = {
  connecting: "Connecting …",
  live: "Live",
  polling: "Live, in turns with other tabs",
  hidden: "Asleep while hidden",
  over: "Over",
};

export class SessionPage {
  #id;
  #view;
  #tellState;
  #turns = new Map(); // turn -> TurnView
  #announcer = new Announcer();
  #replayedTo = null; // what existed when we came is not read out
  #frame = null;
  #title = element("h1", { tabindex: "-1" }, "Session");
  #meta = element("p", { class: "meta" });
  #notice = element("div", { class: "notice", role: "alert" });
  #list = element("div", { class: "turns" });
  #queue = element("section", { class: "queue", "aria-label": "Queued messages", hidden: true });
  #cancel = button("Cancel turn", () => this.#cancelTurn(), { class: "danger" });
  #latest = button("Latest", () => this.#toBottom(), { class: "latest", hidden: true });
  #composer;
  #clock;
  #onScroll;

  #onChange;
  #doingNow = element("p", { class: "doing" });
  #openRow = element("div", { class: "row open-turn", hidden: true }, this.#doingNow, this.#cancel);

  /** tellState(state, words): how the stream stands. onChange(): the session's status is another one. */
  constructor(sessionId, tellState, onChange, heartbeatS) {
    this.#id = sessionId;
    this.#onChange = onChange;
    this.#tellState = tellState;
    this.#view = emptyView(sessionId);
    const toSend = (message, how) => this.#toSend(message, how);
    this.#composer = new Composer(sessionId, "Message", toSend, () => this.#toBottom(), this.#openRow);
    this.#composer.onRefused = (error) => this.#onRefused(error);
    this.#composer.root.hidden = true;
    const tools = element(
      "div",
      { class: "row tools" },
      button("Audit", () => this.#audit()),
      button("Raw events", () => showEvent(this.#id, Math.max(0, this.#view.nextIndex - 1))),
    );
    this.root = element(
      "div",
      { class: "session" },
      element("header", { class: "session-head" }, element("div", {}, this.#title, this.#meta), tools),
      this.#notice,
      this.#list,
      this.#queue,
      element("div", { class: "foot" }, this.#latest, this.#composer.root),
    );
    this.#onScroll = () => (this.#latest.hidden = isAtBottom());
    window.addEventListener("scroll", this.#onScroll, { passive: true });
    this.#clock = setInterval(() => this.#tick(), CLOCK_MS);
    this.follower = new Follower(sessionId, this.#target(), heartbeatS);
  }

  get heading() {
    return this.#title;
  }

  /** Let go of the stream and of every timer. */
  close() {
    this.follower.close();
    this.#announcer.close();
    clearInterval(this.#clock);
    window.removeEventListener("scroll", this.#onScroll);
    if (this.#frame !== null) cancelAnimationFrame(this.#frame);
  }

  #target() {
    return {
      cursor: () => this.#view.nextIndex,
      isOver: () => isOver(this.#view),
      opened: (tail) => (this.#replayedTo ??= tail),
      take: (events) => this.#take(events),
      reset: () => this.#reset(),
      tell: (state, detail) => this.#tell(state, detail),
    };
  }

  #take(events) {
    for (const event of events) {
      if (reduce(this.#view, event) === "gap") return false;
      if (this.#replayedTo !== null && event.index > this.#replayedTo) this.#announce(event);
    }
    this.#frame ??= requestAnimationFrame(() => this.#render());
    return true;
  }

  #reset() {
    this.#view = emptyView(this.#id);
    this.#turns.clear();
    fill(this.#list);
    this.#replayedTo = null;
    this.#lastTurn = undefined;
    this.#lost = "The host has lost events that this page had seen; here is what it has now.";
  }

  #tell(state, detail) {
    if (state === "gone") {
      fill(this.#notice, `This session is not there: ${detail}`);
      this.#composer.root.hidden = true;
    } else if (state === "refused") fill(this.#notice, detail);
    else if (state === "broken" && detail) fill(this.#notice, detail);
    else if (state === "live" || state === "polling") fill(this.#notice, this.#lost);
    this.#tellState(state, STATES[state] ?? (state === "broken" ? "Reconnecting …" : "Not connected"));
  }

  #announce(event) {
    const { type, data } = event;
    if (type === "message.appended") this.#announcer.hear(data.messageDelta);
    else if (type === "input.requested") this.#announcer.tell(`The agent asks: ${data.prompt} ${requestTitleOf(data)}`);
    else if (type === "authorization.required") this.#announcer.tell(`The agent asks to connect ${data.connection}.`);
    else if (type === "turn.failed") this.#announcer.tell(`The turn failed: ${data.message}`);
    else if (type === "turn.cancelled") this.#announcer.tell("The turn was cancelled.");
    else if (type === "turn.completed") this.#announcer.tell("The turn is complete.");
    else if (type === "step.resumed" && data.discardFrom !== undefined) {
      this.#announcer.tell("The turn is driven again; what was said last does not count.");
    }
  }

  // -- drawing ----------------------------------------------------------------------------------------------------

  #render() {
    this.#frame = null;
    const stick = isAtBottom() || this.#turns.size === 0;
    const view = this.#view;
    const last = view.turns.at(-1);
    const wasLast = this.#lastTurn;
    const changed = [...view.changed];
    view.changed.clear();
    for (const turn of changed) {
      const shown = this.#turns.get(turn) ?? this.#addTurn(turn);
      if (!shown.update(turn === last && !isOver(view))) view.changed.add(turn);
    }
    if (wasLast !== undefined && wasLast !== last && this.#turns.get(wasLast)?.update(false) === false) view.changed.add(wasLast);
    this.#lastTurn = last;
    if (view.changed.size > 0) this.#frame = requestAnimationFrame(() => this.#render());
    this.#drawHead();
    this.#drawQueue();
    if (stick) this.#toBottom();
    else this.#latest.hidden = isAtBottom();
  }

  #lastTurn;
  #lost = null; // what to say when the host's log is shorter than what was shown

  #addTurn(turn) {
    const number = this.#view.turns.indexOf(turn) + 1;
    const made = new TurnView(this.#id, turn, number, () => this.#tryAgain());
    this.#turns.set(turn, made);
    this.#list.append(made.root);
    return made;
  }

  #drawHead() {
    const view = this.#view;
    const first = view.turns[0]?.received;
    const title = first == null ? "Session" : titleOf(messageText(first));
    setText(this.#title, title);
    document.title = `${title} · zhin`;
    const status = statusOf({ status: view.status, parked: view.isParked, isInterrupted: view.isInterrupted });
    const shown = `${view.agent} ${status} ${view.owner} ${view.end?.index}`;
    if (this.#meta.dataset.shown !== shown) {
      this.#meta.dataset.shown = shown;
      const id = element("code", { title: this.#id }, shortId(this.#id));
      const owner = view.owner === null ? null : [" · ", view.owner];
      const chip = element("span", { class: "chip", "data-status": status }, STATUS_WORDS[status] ?? status);
      const about =
        view.metadata === null
          ? null
          : [" · ", button("Metadata", () => openLook("Metadata", valueView(view.metadata)), { class: "raw" })];
      const parts = [chip, " ", view.agent, ...(owner ?? []), " · ", id, " · ", agoTime(view.createdAt, "began ")];
      fill(this.#meta, ...parts, ...(about ?? []));
      if (view.end !== null) this.#list.after(this.#endNote());
      this.#onChange();
    }
    const open = openTurn(view);
    this.#openRow.hidden = open === null;
    this.#cancel.disabled = open?.status === "cancelling";
    setText(this.#doingNow, doing(open, view));
    this.#composer.root.hidden = isOver(view) || view.token === null;
    if (!isOver(view)) this.#composer.setMode(open !== null || view.queue.length > 0 ? "busy" : "rest");
  }

  #endNote() {
    this.root.querySelector(".over")?.remove();
    const { type, code, message, dropped, index } = this.#view.end;
    const words = [type === "session.failed" ? "The session has failed." : "The session is over."];
    if (code !== null) words.push(` ${code}.`);
    if (message !== null) words.push(` ${message}`);
    if (dropped > 0) words.push(` ${count(dropped, "queued message")} never got a turn.`);
    return element("p", { class: "over" }, ...words, " ", rawButton(this.#id, index));
  }

  #drawQueue() {
    const { queue } = this.#view;
    this.#queue.hidden = queue.length === 0;
    const shown = queue.map((row) => row.turnId).join(" ");
    if (this.#queue.dataset.shown === shown) return;
    this.#queue.dataset.shown = shown;
    const rows = queue.map((row) =>
      element("li", {}, element("span", { class: "text" }, messageText(row.message)), " ", rawButton(this.#id, row.index)),
    );
    fill(this.#queue, element("h2", { class: "who" }, "Queued"), element("ol", {}, ...rows));
  }

  #tick() {
    this.#latest.hidden = isAtBottom();
    const open = openTurn(this.#view);
    if (open !== null && document.visibilityState === "visible") this.#turns.get(open)?.draw();
  }

  #toBottom() {
    window.scrollTo({ top: document.documentElement.scrollHeight, behavior: "instant" });
    this.#latest.hidden = true;
  }

  // -- doing ------------------------------------------------------------------------------------------------------

  #toSend(message, how) {
    const body = { continuationToken: this.#view.token, message };
    if (how !== "turn") body.onBusy = how;
    return { path: `session/${this.#id}`, body };
  }

  async #onRefused(error) {
    if (error.code !== "CONTINUATION_TOKEN_STALE") return;
    const known = this.#view.token;
    try {
      const { continuationToken } = await get(`session/${this.#id}`);
      if (this.#view.token === known) this.#view.token = continuationToken;
      this.#composer.tell("Somebody else wrote in this session first. Read what happened, then send yours again.", true);
    } catch (other) {
      this.#composer.tell(other.message, true);
    }
  }

  async #cancelTurn() {
    const open = openTurn(this.#view);
    if (open === null) return;
    await this.#doing(this.#cancel, () => post(`session/${this.#id}/cancel`, { turnId: open.turnId }, { isRepeatable: true }));
  }

  async #tryAgain() {
    await this.#doing(null, () => post(`session/${this.#id}/resume`, { continuationToken: this.#view.token }));
  }

  async #audit() {
    openLook("Audit", element("p", { role: "status" }, "Reading every line …"));
    try {
      const verdict = await get(`session/${this.#id}/audit`);
      openLook("Audit", ...verdictView(this.#id, verdict));
    } catch (error) {
      openLook("Audit", element("p", { class: "wrong", role: "alert" }, error.message));
    }
  }

  async #doing(control, call) {
    if (control !== null) control.disabled = true;
    try {
      await call();
      fill(this.#notice);
    } catch (error) {
      fill(this.#notice, error.message);
    } finally {
      if (control !== null) control.disabled = openTurn(this.#view)?.status === "cancelling";
    }
  }
}

function doing(open, view) {
  if (open === null) return "";
  if (open.status === "cancelling") return "Cancelling …";
  const asked = view.requests.size;
  return asked > 0 ? `Waits for you: ${count(asked, "open request")}.` : "Working …";
}

function isAtBottom() {
  const page = document.documentElement;
  return window.innerHeight + window.scrollY >= page.scrollHeight - BOTTOM_PX;
}
