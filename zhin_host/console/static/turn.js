// Turn: one message and what came of it, with a picture of its time.

import { button, element, fill, setText } from "./element.js";
import { clock, count, duration, messageText, moment, oneLine, pretty } from "./format.js";
import { itemView } from "./items.js";
import { inWords, segmentName, timeline } from "./timeline.js";
import { rawButton } from "./values.js";

const ENDS = {
  completed: "Completed",
  failed: "Failed",
  cancelled: "Cancelled",
};

export class TurnView {
  #sessionId;
  #turn;
  #again;
  #views = new Map(); // item -> {view, version}
  #message = element("div", { class: "text" });
  #asked;
  #isFirst;
  #items = element("div", { class: "items" });
  #bar = element("div", { class: "bar", role: "img" });
  #total = element("span", { class: "total" });
  #rows = element("tbody");
  #end = element("div", { class: "end" });
  #endShown = null;

  /** again: called when a person wants a failed turn to be tried again. */
  constructor(sessionId, turn, number, again) {
    this.#sessionId = sessionId;
    this.#turn = turn;
    this.#again = again;
    const steps = element(
      "details",
      { class: "steps" },
      element("summary", {}, element("span", { class: "unseen" }, "Steps and times: "), this.#total),
      element(
        "div",
        { class: "scroll", tabindex: "0", role: "region", "aria-label": `Steps and times of turn ${number}` },
        element(
          "table",
          {},
          element("thead", {}, element("tr", {}, ...["What", "From", "Took"].map((one) => element("th", { scope: "col" }, one)))),
          this.#rows,
        ),
      ),
    );
    this.#isFirst = number === 1;
    const who = element("h2", { class: "who" }, this.#isFirst ? "You asked" : "You said");
    this.#asked = element("div", { class: "asked" }, who, this.#message);
    this.root = element(
      "article",
      { class: "turn", id: turn.turnId, "aria-label": `Turn ${number}` },
      this.#asked,
      element("div", { class: "picture" }, this.#bar, steps),
      this.#items,
      this.#end,
    );
    steps.addEventListener("toggle", () => this.#drawRows());
    this.#steps = steps;
  }

  #steps;

  /**
   * Bring the page to what the turn is now; `isLast` says whether it can still be tried again.
   * Of a long turn only so much is made at once that the page stays fluent; false says that there is more to make.
   */
  update(isLast = true) {
    const turn = this.#turn;
    this.root.dataset.status = turn.status;
    const message = turn.received === null ? "…" : messageText(turn.received);
    setText(this.#message, message);
    this.#asked.classList.toggle("unseen", this.#isFirst && titleOf(message) === message); // the page's heading is it
    const isWhole = this.#syncItems();
    this.draw();
    this.#showEnd(isLast);
    return isWhole;
  }

  /** The picture, as of now. */
  draw() {
    const turn = this.#turn;
    const now = turn.endedAt ?? Date.now();
    const { segments, placeOf } = timeline(turn, now);
    const bars = segments.map((one) => {
      const part = element("i", { class: `segment ${one.kind}`, title: `${segmentName(one)}: ${duration(one.to - one.from)}` });
      if (one.isBroken) part.classList.add("is-broken");
      if (one.isOpen) part.classList.add("is-open");
      place(part, one.start, one.width);
      return part;
    });
    const actions = turn.items.filter((item) => item.kind === "action" && item.waits === 0 && item.discardedAt === null).slice(-TICKS_MAX);
    const ticks = actions.map((item) => {
      const part = element("i", { class: "tick", "data-status": item.status, title: item.toolName });
      const start = placeOf(item.beganAt);
      place(part, start, Math.max(0, placeOf(item.endedAt ?? now) - start));
      return part;
    });
    fill(this.#bar, ...bars, ...ticks);
    const words = inWords(turn, now);
    if (this.#bar.getAttribute("aria-label") !== words) this.#bar.setAttribute("aria-label", words);
    setText(this.#total, words);
    this.#drawRows();
  }

  #drawRows() {
    if (!this.#steps.open) return;
    const turn = this.#turn;
    const now = turn.endedAt ?? Date.now();
    const rows = timeline(turn, now).segments.map((one) => [one.from, segmentName(one), duration(one.to - one.from) + (one.isOpen ? " so far" : "")]);
    for (const item of turn.items) {
      if (item.kind === "action") {
        const name = item.discardedAt === null ? item.toolName : `${item.toolName} (discarded)`;
        rows.push([item.at, name, item.durationMs === null ? item.status : `${duration(item.durationMs)}, ${item.status}`]);
      }
    }
    rows.sort((one, other) => one[0] - other[0]);
    fill(
      this.#rows,
      ...rows.map(([at, ...cells]) =>
        element("tr", {}, element("td", {}, cells[0]), element("td", {}, clock(at)), element("td", {}, cells[1])),
      ),
    );
  }

  #syncItems() {
    const kept = new Set(this.#turn.items);
    for (const [item, known] of this.#views) {
      if (!kept.has(item) || known.view.isDiscarded !== (item.discardedAt !== null)) {
        known.view.root.remove();
        this.#views.delete(item);
      }
    }
    let place = this.#items.firstChild;
    let made = 0;
    for (const item of this.#turn.items) {
      let known = this.#views.get(item);
      if (known === undefined) {
        if (made === MADE_MAX) return false;
        made += 1;
        known = { view: itemView(this.#sessionId, item), version: item.version };
        this.#views.set(item, known);
      } else if (known.version !== item.version) {
        known.view.update();
        known.version = item.version;
      }
      if (place === known.view.root) place = place.nextSibling;
      else this.#items.insertBefore(known.view.root, place);
    }
    return true;
  }

  #showEnd(isLast) {
    const turn = this.#turn;
    const canTry = isLast && turn.status === "failed" && turn.isRecoverable;
    const wanted = `${turn.status} ${canTry} ${turn.endedAt}`;
    if (this.#endShown === wanted) return;
    this.#endShown = wanted;
    if (turn.endedAt === null) {
      fill(this.#end, turn.status === "cancelling" ? element("p", { class: "note" }, "Cancelling …") : null);
      return;
    }
    const facts = [ENDS[turn.status], ` ${moment(turn.endedAt)}`];
    if (turn.by) facts.push(` by ${turn.by}`);
    if (turn.usage) facts.push(` · ${oneLine(pretty(turn.usage), 80)}`);
    fill(
      this.#end,
      turn.status === "failed"
        ? element("div", { class: "failure" }, element("strong", {}, turn.code), element("p", {}, turn.message))
        : null,
      canTry ? button("Try again", this.#again, { class: "again" }) : null,
      element(
        "p",
        { class: "fine" },
        element("span", { class: "chip", "data-status": turn.status }, ...facts),
        ` ${count(turn.lastIndex - turn.startedIndex + 1, "event")} from `,
        rawButton(this.#sessionId, turn.startedIndex),
      ),
    );
  }
}

/** A session's title, of its first message. */
export function titleOf(message) {
  return oneLine(message, TITLE_MAX);
}

const TITLE_MAX = 90; // characters
const TICKS_MAX = 200;
const MADE_MAX = 300; // pieces of the page in one frame

function place(part, start, width) {
  part.style.setProperty("left", `${(start * 100).toFixed(3)}%`);
  part.style.setProperty("width", `${(width * 100).toFixed(3)}%`);
}
