// Composer: the box a message is written in. A message on its way survives a reload, and is never sent twice.

import { newKey, post } from "./api.js";
import { button, element, fill } from "./element.js";

export class Composer {
  #name;
  #send;
  #input;
  #status = element("p", { class: "hint", role: "status" });
  #buttons = element("div", { class: "row" });
  #mode = "";
  #isSending = false;

  /**
   * name: whose drafts these are. label: of the box. send: makes {path, body} of a text and how it is meant.
   * onSent(answer): the host has it.
   */
  constructor(name, label, send, onSent, ...more) {
    this.#name = name;
    this.#send = send;
    this.onSent = onSent;
    this.#input = element("textarea", { id: "message", rows: "1", placeholder: label, "aria-label": label, enterkeyhint: "send" });
    this.#input.value = sessionStorage.getItem(this.#draftKey) ?? "";
    this.#input.addEventListener("input", () => this.#keepDraft());
    this.#input.addEventListener("keydown", (event) => this.#onKey(event));
    this.root = element(
      "form",
      { class: "composer", on: { submit: (event) => this.#onSubmit(event) } },
      ...more,
      element("div", { class: "write" }, this.#input, this.#buttons),
      this.#status,
    );
    this.setMode("rest");
    this.#sendAgain();
  }

  /** Put the text cursor into the box. */
  focus() {
    this.#input.focus();
  }

  /** rest: a message begins a turn. busy: it waits for the open one, or interrupts it. over: no more messages. */
  setMode(mode) {
    if (this.#mode === mode) return;
    this.#mode = mode;
    this.root.hidden = mode === "over";
    const submit = element("button", { type: "submit", class: "primary" }, mode === "busy" ? "Queue" : "Send");
    const interrupt = button("Interrupt", () => this.#begin("interrupt"), {
      title: "Cancel the open turn; this message comes next",
    });
    fill(this.#buttons, submit, mode === "busy" ? interrupt : null);
  }

  /** Say something below the box. */
  tell(sentence, isWrong = false) {
    fill(this.#status, isWrong ? element("span", { class: "wrong" }, sentence) : sentence);
  }

  get #draftKey() {
    return `zhin.draft.${this.#name}`;
  }

  get #sendingKey() {
    return `zhin.sending.${this.#name}`;
  }

  #keepDraft() {
    if (this.#input.value === "") sessionStorage.removeItem(this.#draftKey);
    else sessionStorage.setItem(this.#draftKey, this.#input.value);
  }

  #onKey(event) {
    if (event.key !== "Enter" || event.isComposing || event.shiftKey || event.altKey) return;
    const isKeyboard = matchMedia("(pointer: fine)").matches || event.ctrlKey || event.metaKey;
    if (!isKeyboard) return; // on a phone Enter is a new line
    event.preventDefault();
    this.#begin(this.#mode === "busy" ? "queue" : "turn");
  }

  #onSubmit(event) {
    event.preventDefault();
    this.#begin(this.#mode === "busy" ? "queue" : "turn");
  }

  async #begin(how) {
    const message = this.#input.value;
    if (this.#isSending) return;
    if (message.trim() === "") {
      this.tell("Write something first.");
      this.focus();
      return;
    }
    await this.#deliver({ ...this.#send(message, how), key: newKey(), message });
  }

  /** What was on its way when the page was reloaded: the host knows its key, so it counts once. */
  async #sendAgain() {
    const kept = sessionStorage.getItem(this.#sendingKey);
    if (kept !== null) await this.#deliver(JSON.parse(kept));
  }

  async #deliver(sending) {
    this.#isSending = true;
    sessionStorage.setItem(this.#sendingKey, JSON.stringify(sending));
    this.tell("Sending…");
    try {
      const answer = await post(sending.path, sending.body, { key: sending.key });
      if (this.#input.value === sending.message) this.#input.value = "";
      this.#keepDraft();
      this.tell(answer.queued ? "Queued: its turn comes after the open one." : "");
      sessionStorage.removeItem(this.#sendingKey);
      this.onSent(answer);
    } catch (error) {
      sessionStorage.removeItem(this.#sendingKey);
      if (this.#input.value === "") this.#input.value = sending.message;
      this.#keepDraft();
      this.tell(error.message, true);
      this.onRefused?.(error);
    } finally {
      this.#isSending = false;
    }
  }
}
