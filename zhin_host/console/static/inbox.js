// Inbox: every open request of every session, oldest wait last, each with the ways to answer it.

import { get } from "./api.js";
import { element, fill, setText } from "./element.js";
import { count, oneLine, shortId } from "./format.js";
import { requestCard } from "./requests.js";
import { onTitle, titleFor } from "./titles.js";

const PAGE = 200;
const PAGES_MAX = 10;
const VIEWS_AT_ONCE = 3;
const REFRESH_MS = 4000;
const COUNT_MS = 10_000; // how often the number is asked for while another page is shown
const SHOWN_MAX = 60;

/** The sessions that wait for a person, and how many requests each has; the number stands beside the word Inbox. */
export class Waiting {
  #link;
  #listeners = new Set();
  #timer = null;
  sessions = [];
  isWhole = true;
  error = null;

  constructor(link) {
    this.#link = link;
    document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && this.refresh());
    this.refresh();
  }

  /** Hear of every refresh; gives back how to stop that. */
  listen(listener) {
    this.#listeners.add(listener);
    this.refresh();
    return () => this.#listeners.delete(listener);
  }

  /** Ask the host now, and again after a while. */
  async refresh() {
    clearTimeout(this.#timer);
    if (document.visibilityState === "visible") await this.#ask();
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.refresh(), this.#listeners.size > 0 ? REFRESH_MS : COUNT_MS);
  }

  async #ask() {
    try {
      const found = [];
      let before = null;
      for (let pages = 0; pages < PAGES_MAX; pages += 1) {
        const page = await get("sessions", { status: "waiting", limit: PAGE, before });
        found.push(...page.sessions.filter((row) => row.pendingRequestIds.length > 0));
        before = page.nextBefore ?? null;
        if (before === null) break;
      }
      this.sessions = found;
      this.isWhole = before === null;
      this.error = null;
      this.#tell();
    } catch (error) {
      this.error = error;
    }
    for (const listener of this.#listeners) listener();
  }

  #tell() {
    const open = this.sessions.reduce((sum, row) => sum + row.pendingRequestIds.length, 0);
    const shown = open === 0 ? null : element("span", { class: "badge" }, `${open}${this.isWhole ? "" : "+"}`);
    const words = open === 0 ? null : element("span", { class: "unseen" }, ` open ${open === 1 ? "request" : "requests"}`);
    fill(this.#link, "Inbox", shown === null ? null : " ", shown, words);
  }
}

export class InboxPage {
  #waiting;
  #stops;
  #cards = new Map(); // requestId -> {root, isDone}
  #list = element("div", { class: "requests" });
  #said = element("p", { class: "hint", role: "status" }, "Looking …");
  #drawing = null;
  #isAgain = false;

  constructor(waiting) {
    this.#waiting = waiting;
    this.heading = element("h1", { tabindex: "-1" }, "Inbox");
    this.root = element("div", { class: "inbox" }, this.heading, this.#said, this.#list);
    this.#stops = [waiting.listen(() => this.#update()), onTitle(() => this.#nameAll())];
  }

  close() {
    for (const stop of this.#stops) stop();
  }

  #nameAll() {
    for (const { link, sessionId } of this.#cards.values()) setText(link, nameOf(sessionId));
  }

  /** One drawing at a time; what changes meanwhile is drawn after it. */
  async #update() {
    if (this.#drawing !== null) {
      this.#isAgain = true;
      return;
    }
    this.#drawing = this.#draw();
    await this.#drawing;
    this.#drawing = null;
    if (this.#isAgain) {
      this.#isAgain = false;
      this.#update();
    }
  }

  async #draw() {
    const { sessions, error } = this.#waiting;
    if (error !== null) {
      fill(this.#said, element("span", { class: "wrong" }, error.message));
      return;
    }
    const open = sessions.flatMap((row) => row.pendingRequestIds);
    const known = new Set(open);
    for (const [id, card] of this.#cards) {
      if (known.has(id) || card.isDone || card.root.contains(document.activeElement)) continue;
      card.root.remove();
      this.#cards.delete(id);
    }
    const unseen = sessions.filter((row) => row.pendingRequestIds.some((id) => !this.#cards.has(id)));
    await this.#addAll(unseen.slice(0, SHOWN_MAX));
    const hidden = open.length - open.filter((id) => this.#cards.has(id)).length;
    const more = hidden > 0 ? ` ${hidden} more come up as these are answered.` : "";
    setText(this.#said, open.length === 0 ? "Nobody waits for you." : `${count(open.length, "open request")}.${more}`);
  }

  async #addAll(rows) {
    const left = [...rows];
    const one = async () => {
      for (let row = left.shift(); row !== undefined; row = left.shift()) {
        try {
          this.#add(await get(`session/${row.sessionId}`));
        } catch {
          continue; // it was deleted, or will be seen with the next refresh
        }
      }
    };
    await Promise.all(Array.from({ length: VIEWS_AT_ONCE }, one));
  }

  #add(view) {
    for (const request of view.pendingRequests) {
      if (this.#cards.has(request.requestId) || this.#cards.size >= SHOWN_MAX) continue;
      const link = element("a", { to: `/session/${view.sessionId}` }, nameOf(view.sessionId));
      const entry = { isDone: false, at: view.updatedAt, sessionId: view.sessionId, link };
      const onDone = () => {
        entry.isDone = true;
        this.#waiting.refresh();
      };
      const where = element("p", { class: "fine" }, link, " · ", view.agent);
      entry.root = element("div", { class: "inbox-entry" }, where, requestCard(view.sessionId, request, view.updatedAt, { heading: "h2", onDone }));
      this.#cards.set(request.requestId, entry);
      const after = [...this.#cards.values()].find((other) => other !== entry && other.at < entry.at && other.root.isConnected);
      this.#list.insertBefore(entry.root, after?.root ?? null);
    }
  }
}

function nameOf(sessionId) {
  const title = titleFor(sessionId);
  return title === null ? `Session ${shortId(sessionId)}` : oneLine(title, 100);
}
