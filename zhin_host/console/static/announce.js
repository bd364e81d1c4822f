// Announce: what a screen reader says of a live session: whole sentences, at most one piece a second.

import { element } from "./element.js";

const PAUSE_MS = 1000;
const WAIT_MS = 4000; // for the end of a sentence; then what there is
const KEPT = 20;
const SENTENCE = /^[\s\S]*[.!?:;\n](?=\s|$)/u;

export class Announcer {
  #region = document.getElementById("spoken");
  #heard = "";
  #since = 0;
  #timer = null;

  /** Text as it comes; said when a sentence is whole. */
  hear(delta) {
    if (this.#heard === "") this.#since = Date.now();
    this.#heard += delta;
    this.#timer ??= setInterval(() => this.#flush(false), PAUSE_MS);
  }

  /** Something happened; said at once, after what was heard so far. */
  tell(sentence) {
    this.#flush(true);
    this.#say(sentence);
  }

  /** Say nothing more of what was heard. */
  close() {
    clearInterval(this.#timer);
    this.#timer = null;
    this.#heard = "";
  }

  #flush(isAll) {
    const isLate = isAll || Date.now() - this.#since > WAIT_MS;
    const ready = isLate ? this.#heard : (SENTENCE.exec(this.#heard)?.[0] ?? "");
    this.#heard = this.#heard.slice(ready.length);
    this.#since = Date.now();
    if (ready.trim() !== "") this.#say(ready);
    if (this.#heard === "") {
      clearInterval(this.#timer);
      this.#timer = null;
    }
  }

  #say(words) {
    this.#region.append(element("p", {}, words));
    while (this.#region.childElementCount > KEPT) this.#region.firstElementChild.remove();
  }
}
