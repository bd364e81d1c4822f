// Main: which page is shown for which address, and what all pages share.

import { leaveButton } from "./access.js";
import { get } from "./api.js";
import { element, fill, setAttribute, setText } from "./element.js";
import { ago } from "./format.js";
import { InboxPage, Waiting } from "./inbox.js";
import { SessionPage } from "./session.js";
import { SessionList } from "./sessions.js";
import { StartPage } from "./start.js";

const AGO_MS = 15_000;
const RETRY_MS = 2000;
const SESSION = /^#\/session\/(ses_[0-9a-z]{26})$/;

const main = document.getElementById("main");
const linkState = document.getElementById("link-state");
let page = null;
let info = { agents: [], limits: {} };

function routeOf(hash) {
  const found = SESSION.exec(hash);
  if (found !== null) return { name: "session", sessionId: found[1] };
  if (hash === "#/inbox") return { name: "inbox" };
  return { name: hash === "#/new" ? "new" : "sessions" };
}

function show(list, waiting, isFirst) {
  const route = routeOf(location.hash);
  const refresh = () => {
    list.refresh();
    waiting.refresh();
  };
  page?.close();
  document.getElementById("look").close();
  tellLink("", "");
  document.body.dataset.route = route.name;
  setAttribute(document.getElementById("to-sessions"), "aria-current", route.name === "sessions" ? "page" : null);
  setAttribute(document.getElementById("to-inbox"), "aria-current", route.name === "inbox" ? "page" : null);
  list.setCurrent(route.sessionId ?? null);
  if (route.name === "session") page = new SessionPage(route.sessionId, tellLink, refresh, info.limits.heartbeat_s);
  else if (route.name === "inbox") page = new InboxPage(waiting);
  else page = new StartPage(info.agents);
  document.title = { session: "Session", inbox: "Inbox", sessions: "Sessions", new: "New session" }[route.name] + " · zhin";
  fill(main, page.root);
  window.scrollTo(0, 0);
  if (isFirst) return;
  if (route.name === "new") page.composer.focus();
  else if (route.name !== "sessions") page.heading.focus({ preventScroll: true });
  if (route.name !== "session") list.refresh();
}

function tellLink(state, words) {
  linkState.dataset.state = state;
  setText(linkState, words);
}

/** The agents and limits; without them there is nothing to show, so it is asked for until the host answers. */
async function begin() {
  for (;;) {
    try {
      return await get("info");
    } catch (error) {
      fill(main, element("div", { class: "start" }, element("h1", {}, "Not connected"), element("p", { role: "alert" }, error.message)));
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }
}

function keepAgosTrue() {
  for (const shown of document.querySelectorAll("time[data-ago]")) {
    setText(shown, shown.dataset.before + ago(Number(shown.dataset.ago)));
  }
}

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});

info = await begin();
const list = new SessionList(document.getElementById("list"), info.agents);
const waiting = new Waiting(document.getElementById("to-inbox"));
const leave = leaveButton();
if (leave !== null) document.querySelector(".top").append(leave);
window.addEventListener("hashchange", () => show(list, waiting, false));
show(list, waiting, true);
setInterval(keepAgosTrue, AGO_MS);
