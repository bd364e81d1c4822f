// Access: the bearer token of this page. It is in sessionStorage and in the Authorization header, and nowhere else.

import { button, element, fill } from "./element.js";

const KEY = "zhin.token";
const CHANNEL = "zhin.token";
const ANSWER_MS = 150; // how long another tab may take to hand the token over

let token = sessionStorage.getItem(KEY);
let asking = null; // one dialog for all calls that met a 401
let onGiven = null;

const channel = new BroadcastChannel(CHANNEL);
channel.addEventListener("message", ({ data }) => {
  if (data?.ask === true && token !== null) channel.postMessage({ token });
  else if (typeof data?.token === "string" && (token === null || onGiven !== null)) onGiven?.(data.token, false);
});

// Without a token there is nothing behind the dialog, so Escape does not close it.
document.getElementById("access").addEventListener("cancel", (event) => event.preventDefault());

/** The Authorization header, or none. */
export function authorization() {
  return token === null ? {} : { authorization: `Bearer ${token}` };
}

/** Ask for a token after a 401 to `headers`; resolves when there is another one. Once, however many calls wait. */
export async function renew(headers, message) {
  if (authorization().authorization !== headers.authorization) return; // somebody was faster
  forget();
  asking ??= ask(message).finally(() => {
    asking = null;
    onGiven = null;
  });
  await asking;
}

function forget() {
  token = null;
  sessionStorage.removeItem(KEY);
}

function keep(given) {
  token = given;
  sessionStorage.setItem(KEY, given);
}

async function ask(message) {
  const handed = await askOtherTabs();
  if (handed !== null) {
    keep(handed);
    return;
  }
  await new Promise((resolve) => {
    const dialog = document.getElementById("access");
    onGiven = (given, isTyped) => {
      keep(given);
      if (isTyped) channel.postMessage({ token: given });
      dialog.close();
      fill(dialog);
      resolve();
    };
    show(dialog, message);
  });
}

const handedOver = new Set(); // tokens of other tabs, each tried once

async function askOtherTabs() {
  const handed = await new Promise((resolve) => {
    onGiven = (given) => resolve(given);
    channel.postMessage({ ask: true });
    setTimeout(resolve, ANSWER_MS, null);
  });
  onGiven = null;
  if (handed === null || handedOver.has(handed)) return null;
  handedOver.add(handed);
  return handed;
}

function show(dialog, message) {
  const input = element("input", {
    id: "token",
    type: "password",
    autocomplete: "off",
    autocapitalize: "off",
    spellcheck: "false",
    required: true,
    "aria-describedby": "access-why",
  });
  const submit = (event) => {
    event.preventDefault();
    const given = input.value.trim();
    if (/^[!-~]+$/.test(given)) onGiven(given, true);
    else fill(why, "A token is one word of plain letters, digits and signs; paste it as it stands in the token file.");
  };
  const why = element("p", { id: "access-why", role: "status" }, message);
  const form = element(
    "form",
    { on: { submit } },
    element("h2", { id: "access-title" }, "Who are you?"),
    why,
    element("label", { for: "token" }, "Token"),
    input,
    element("p", { class: "hint" }, "It stays in this tab until you close it."),
    element("button", { type: "submit", class: "primary" }, "Go on"),
  );
  fill(dialog, form);
  dialog.showModal();
  input.focus();
}

/** A button that forgets the token, or null when there is none. */
export function leaveButton() {
  if (token === null) return null;
  return button("Forget token", () => {
    forget();
    location.reload();
  });
}
