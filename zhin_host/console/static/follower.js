// Follower: one session's events from a cursor on, for as long as the page wants them, over every break.
//
// A browser opens six connections to a host. So a hidden page holds no stream, pages that are shown share SLOTS
// streams, and a page without one asks for the tail now and then until a slot is free.

import { openStream, Refused } from "./api.js";
import { parse } from "./format.js";
import { LineSplitter } from "./lines.js";

const SLOTS = 4;
const POLL_MS = 2000;
const BACKOFF_MS = 500;
const BACKOFF_MAX_MS = 15_000;
const HEARTBEATS_MISSED = 3;

export class Follower {
  #sessionId;
  #target;
  #silenceMs;
  #closing = new AbortController();
  #why = null; // the host's sentence, when it refused
  #breaks = 0; // in a row, without an event or heartbeat in between

  /**
   * target: `cursor()` says which index comes next; `take(events)` takes whole events in order and answers whether
   * they fit; `opened(tail)` hears the last index there was at an opening; `isOver()` whether nothing more will come; `reset()` starts from 0 again, when the host lost what was
   * seen; `tell(state, detail)` hears how it stands: connecting, live, polling, hidden, broken, over, gone, refused.
   */
  constructor(sessionId, target, heartbeatS = 15) {
    this.#sessionId = sessionId;
    this.#target = target;
    this.#silenceMs = Math.max(1000, heartbeatS * 1000 * HEARTBEATS_MISSED);
    this.#run();
  }

  /** Let go for good. */
  close() {
    this.#closing.abort();
  }

  async #run() {
    while (!this.#closing.signal.aborted) {
      if (this.#target.isOver()) {
        this.#target.tell("over");
        return;
      }
      if (document.visibilityState === "hidden") {
        this.#target.tell("hidden");
        await this.#shown();
        continue;
      }
      try {
        await this.#follow();
        this.#why = null;
        this.#breaks += 1; // it ended in order: the host stops, or the session is over
      } catch (error) {
        if (this.#closing.signal.aborted) return;
        if (error instanceof Refused && this.#isFinal(error)) return;
        this.#why = error instanceof Refused ? error.message : null;
        this.#breaks += 1;
      }
      if (!this.#target.isOver() && document.visibilityState === "visible" && this.#breaks > 0) await this.#pause();
    }
  }

  #isFinal(error) {
    if (error.status === 404) this.#target.tell("gone", error.message);
    else if (error.status === 403) this.#target.tell("refused", error.message);
    else return false;
    return true;
  }

  async #follow() {
    if (this.#breaks === 0) this.#target.tell("connecting");
    const release = await takeSlot();
    try {
      if (release === null) {
        await this.#read("tail");
        this.#breaks = 0;
        this.#target.tell("polling");
        await this.#sleep(POLL_MS * (1 + Math.random() / 4));
      } else {
        await this.#read("never");
      }
    } finally {
      release?.();
    }
  }

  async #read(until) {
    const stopping = new AbortController();
    const stop = () => stopping.abort();
    const onHidden = () => document.visibilityState === "hidden" && stop();
    this.#closing.signal.addEventListener("abort", stop);
    document.addEventListener("visibilitychange", onHidden);
    let silence = setTimeout(stop, this.#silenceMs);
    try {
      const response = await openStream(this.#sessionId, this.#target.cursor(), until, stopping.signal);
      const tail = Number(response.headers.get("x-zhin-tail-index") ?? NaN);
      this.#target.opened(tail);
      if (tail + 1 < this.#target.cursor()) {
        this.#target.reset();
        return;
      }
      const splitter = new LineSplitter();
      const reader = response.body.getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        clearTimeout(silence);
        silence = setTimeout(stop, this.#silenceMs);
        this.#breaks = 0;
        if (until === "never") this.#target.tell("live");
        const lines = splitter.push(value);
        if (lines.length > 0 && !this.#target.take(lines.map(parse))) return; // a gap: read again from the cursor
      }
    } catch (error) {
      if (document.visibilityState === "hidden" || this.#closing.signal.aborted) this.#breaks = -1;
      else throw error;
    } finally {
      stopping.abort();
      clearTimeout(silence);
      this.#closing.signal.removeEventListener("abort", stop);
      document.removeEventListener("visibilitychange", onHidden);
    }
  }

  async #pause() {
    const most = Math.min(BACKOFF_MAX_MS, BACKOFF_MS * 2 ** Math.min(this.#breaks - 1, 10));
    const waitMs = most / 2 + (Math.random() * most) / 2;
    if (this.#breaks > 1) this.#target.tell("broken", this.#why);
    await this.#sleep(waitMs);
  }

  #sleep(ms) {
    return new Promise((resolve) => {
      const over = new AbortController();
      const wake = () => {
        clearTimeout(timer);
        over.abort();
        resolve();
      };
      const timer = setTimeout(wake, ms);
      this.#closing.signal.addEventListener("abort", wake, { signal: over.signal });
      window.addEventListener("online", wake, { signal: over.signal });
    });
  }

  #shown() {
    return new Promise((resolve) => {
      const look = () => {
        if (document.visibilityState === "hidden" && !this.#closing.signal.aborted) return;
        document.removeEventListener("visibilitychange", look);
        resolve();
      };
      document.addEventListener("visibilitychange", look);
      this.#closing.signal.addEventListener("abort", look, { once: true });
    });
  }
}

/** A function that gives the slot back, or null when all are taken. Without Web Locks every page has one. */
async function takeSlot() {
  if (navigator.locks === undefined) return () => {};
  for (let slot = 0; slot < SLOTS; slot += 1) {
    const release = await tryLock(`zhin-stream-${slot}`);
    if (release !== null) return release;
  }
  return null;
}

function tryLock(name) {
  return new Promise((resolve, reject) => {
    navigator.locks
      .request(name, { ifAvailable: true }, (lock) => {
        if (lock === null) {
          resolve(null);
          return undefined;
        }
        return new Promise((release) => resolve(release));
      })
      .catch(reject);
  });
}

/** The lines of a session from `startIndex` on, until `enough(events)` or the tail; for one look, not for following. */
export async function glance(sessionId, startIndex, enough, signal) {
  const stopping = new AbortController();
  const stop = () => stopping.abort();
  signal?.addEventListener("abort", stop);
  try {
    const response = await openStream(sessionId, startIndex, "tail", stopping.signal);
    const reader = response.body.getReader();
    const splitter = new LineSplitter();
    const lines = [];
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return lines;
      lines.push(...splitter.push(value));
      if (enough(lines)) return lines;
    }
  } finally {
    stopping.abort();
    signal?.removeEventListener("abort", stop);
  }
}
