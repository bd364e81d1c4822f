// Sessions: the list, newest first, paged; status asked of the host, text and agent sought in what is loaded.

import { get } from "./api.js";
import { button, element, fill, setAttribute, setPlace, setText } from "./element.js";
import { count, oneLine, pretty, shortId } from "./format.js";
import { agoTime } from "./requests.js";
import { STATUS_WORDS, statusOf } from "./status.js";
import { onTitle, titleFor } from "./titles.js";

const PAGE = 30;
const PAGE_MAX = 200;
const REFRESH_MS = 5000;
const ROUNDS_MAX = 10; // pages in a row that may be short before we stop asking for the next

export class SessionList {
  #rows = new Map(); // sessionId -> row of the host
  #shown = new Map(); // sessionId -> {root, update}
  #next = null; // where the next page begins
  #current = null;
  #generation = 0;

  #search = element("input", { type: "search", id: "search", placeholder: "Text, id or metadata" });
  #status = select("status", [
    ["", "Any status"],
    ["running", "Running"],
    ["waiting", "Waiting"],
    ["completed", "Completed"],
    ["failed", "Failed"],
  ]);
  #agent = select("agent-filter", [["", "Any agent"]]);
  #list = element("ul", { class: "rows" });
  #more = button("Load more", () => this.#load(), { class: "more", hidden: true });
  #said = element("p", { class: "hint", role: "status" });

  constructor(root, agents) {
    for (const { name } of agents) this.#offerAgent(name);
    fill(
      root,
      element(
        "div",
        { class: "filters" },
        element("a", { to: "/new", class: "new" }, "New session"),
        field("Find", this.#search),
        element("div", { class: "row" }, field("Status", this.#status), field("Agent", this.#agent)),
      ),
      this.#list,
      this.#said,
      this.#more,
    );
    onTitle(() => this.#draw());
    this.#search.addEventListener("input", () => this.#draw());
    this.#agent.addEventListener("change", () => this.#draw());
    this.#status.addEventListener("change", () => this.#restart());
    setInterval(() => document.visibilityState === "visible" && this.refresh(), REFRESH_MS);
    document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && this.refresh());
    this.#load();
  }

  /** Which session the page shows. */
  setCurrent(sessionId) {
    this.#current = sessionId;
    this.#draw();
  }

  /** Ask again for what is loaded. */
  async refresh() {
    const generation = this.#generation;
    const limit = Math.min(PAGE_MAX, Math.max(PAGE, this.#rows.size));
    try {
      const page = await get("sessions", { status: this.#status.value, limit });
      if (generation !== this.#generation) return;
      const oldest = page.sessions.at(-1)?.sessionId ?? "";
      const isWhole = page.nextBefore === undefined || page.sessions.length === limit;
      const seen = new Set(page.sessions.map((row) => row.sessionId));
      for (const id of this.#rows.keys()) {
        if (isWhole && !seen.has(id) && (id > oldest || page.nextBefore === undefined)) this.#rows.delete(id);
      }
      this.#keep(page.sessions);
      this.#draw();
    } catch (error) {
      fill(this.#said, error.message);
    }
  }

  #restart() {
    this.#generation += 1;
    this.#rows.clear();
    this.#next = null;
    this.#draw();
    this.#load();
  }

  async #load() {
    const generation = this.#generation;
    this.#more.disabled = true;
    fill(this.#said, "Loading …");
    try {
      for (let round = 0, found = 0; round < ROUNDS_MAX && found === 0; round += 1) {
        const page = await get("sessions", { status: this.#status.value, limit: PAGE, before: this.#next });
        if (generation !== this.#generation) return;
        found = page.sessions.length;
        this.#keep(page.sessions);
        this.#next = page.nextBefore ?? null;
        if (this.#next === null) break;
      }
      this.#draw();
    } catch (error) {
      fill(this.#said, error.message);
    } finally {
      this.#more.disabled = false;
    }
  }

  #keep(rows) {
    for (const row of rows) {
      this.#rows.set(row.sessionId, row);
      this.#offerAgent(row.agent);
    }
  }

  #offerAgent(name) {
    const known = [...this.#agent.options].some((option) => option.value === name);
    if (!known) this.#agent.append(element("option", { value: name }, name));
  }

  #draw() {
    const sought = spaced(this.#search.value);
    const rows = [...this.#rows.values()]
      .filter((row) => this.#agent.value === "" || row.agent === this.#agent.value)
      .filter((row) => textOf(row).includes(sought))
      .sort((one, other) => (one.sessionId < other.sessionId ? 1 : -1));
    const wanted = new Set(rows.map((row) => row.sessionId));
    for (const [id, view] of this.#shown) {
      if (!wanted.has(id)) {
        view.root.remove();
        this.#shown.delete(id);
      }
    }
    let place = this.#list.firstChild;
    for (const row of rows) {
      let view = this.#shown.get(row.sessionId);
      if (view === undefined) this.#shown.set(row.sessionId, (view = rowView(row)));
      view.update(row, titleFor(row.sessionId), row.sessionId === this.#current);
      if (place === view.root) place = place.nextSibling;
      else this.#list.insertBefore(view.root, place);
    }
    this.#more.hidden = this.#next === null;
    setText(this.#said, this.#saying(rows.length));
  }

  #saying(shown) {
    const all = this.#rows.size;
    const more = this.#next === null ? "" : " Load more to look further.";
    if (all === 0) return this.#next === null ? "No sessions." : `None so far.${more}`;
    return shown === all ? `${count(all, "session")}.${more}` : `${shown} of ${count(all, "session")} loaded.${more}`;
  }
}

/** What the text filter looks into. */
function textOf(row) {
  const title = titleFor(row.sessionId) ?? "";
  const metadata = row.metadata === null ? "" : pretty(row.metadata);
  return spaced([title, row.sessionId, row.agent, row.owner ?? "", metadata].join("\n"));
}

function spaced(words) {
  return words.toLowerCase().replace(/\s+/gu, " ").trim();
}

function rowView({ sessionId }) {
  const title = element("span", { class: "title" });
  const chip = element("span", { class: "chip" });
  const about = element("span", { class: "about" });
  const link = element("a", { class: "session-link" }, title, element("span", { class: "under" }, chip, about));
  setPlace(link, `/session/${sessionId}`);
  let shownAt = null;
  const update = (row, name, isCurrent) => {
    setText(title, name === null ? shortId(row.sessionId) : oneLine(name, 100));
    const status = statusOf(row);
    chip.dataset.status = status;
    setText(chip, STATUS_WORDS[status] ?? status);
    setAttribute(link, "aria-current", isCurrent ? "page" : null);
    if (shownAt !== row.updatedAt) {
      shownAt = row.updatedAt;
      fill(about, row.agent, " · ", agoTime(row.updatedAt));
    }
  };
  return { root: element("li", {}, link), update };
}

function field(label, control) {
  return element("div", { class: "field" }, element("label", { for: control.id }, label), control);
}

function select(id, options) {
  return element("select", { id }, ...options.map(([value, label]) => element("option", { value }, label)));
}
