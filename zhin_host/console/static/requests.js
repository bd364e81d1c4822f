// Requests: what waits for a person, with everything that is asked, and the ways to answer it.

import { post, Refused } from "./api.js";
import { button, element, fill, outsideLink, setAttribute, time } from "./element.js";
import { ago, duration, moment, oneLine, parse, pretty } from "./format.js";
import { rawButton, valueView } from "./values.js";

const KINDS = {
  approval: "Approval",
  question: "Question",
  retry: "Run it again?",
  authorization: "Authorization",
};
const OUTCOMES = {
  approved: "Approved",
  denied: "Denied",
  answered: "Answered",
  expired: "Expired: nobody answered in time",
  cancelled: "Withdrawn: the turn ended first",
  authorized: "Authorized",
  failed: "Authorization failed",
};

const OPTION_MAX = 1000; // characters of a choice that is not text

let made = 0; // for ids that no request's own id can forge

/** What a request asks, in a few words. */
export function titleOf(request) {
  if (request.kind === "authorization") return `Connect ${request.connection}`;
  if (request.toolName !== undefined) return request.toolName;
  return oneLine(String(request.prompt ?? request.toolName ?? ""));
}

/** How a request ended, in a few words. */
export function outcomeText(item) {
  const words = [OUTCOMES[item.outcome] ?? item.outcome];
  if (item.requestKind === "retry" && item.outcome === "approved") words[0] = "Run again";
  if (item.requestKind === "retry" && item.outcome === "denied") words[0] = "Not run again";
  const { by, response, comment, error, at } = item.answer;
  if (by !== undefined && by !== null) words.push(` by ${by}`);
  if (item.outcome === "answered") words.push(`: ${typeof response === "string" ? response : pretty(response)}`);
  if (item.outcome === "failed" && error) words.push(`: ${error}`);
  if (comment) words.push(` — “${comment}”`);
  words.push(`, after ${duration(at - item.at)}`);
  return words.join("");
}

/** The card of an open request, its heading `heading`. `onDone()` is called when an answer has been taken. */
export function requestCard(sessionId, request, askedAt, { heading = "h3", onDone = () => {} } = {}) {
  made += 1;
  const id = `request-${made}`;
  const said = element("p", { class: "said-so", role: "status", tabindex: "-1" });
  const answering = element("div", { class: "answering" });
  const card = element(
    "section",
    { class: "card request", "aria-labelledby": id, "data-request": request.requestId, "data-kind": request.kind },
    element(
      "div",
      { class: "card-head" },
      element(heading, { id }, element("span", { class: "kind" }, KINDS[request.kind] ?? request.kind), " ", titleOf(request)),
      agoTime(askedAt, "asked "),
    ),
    ...explanation(request),
    answering,
    said,
  );
  let isBusy = false;
  const setBusy = (isNow) => {
    isBusy = isNow; // not disabled: a button that is loses the focus
    for (const control of answering.querySelectorAll("button")) setAttribute(control, "aria-disabled", isNow ? "true" : null);
  };
  const send = async (path, body, done) => {
    if (isBusy) return;
    setBusy(true);
    fill(said, "Sending…");
    try {
      const taken = await post(path, body, { isRepeatable: true });
      const sentence = taken.alreadyAnswered ? `${done} Somebody had answered so before.` : done;
      answering.remove();
      fill(said, sentence);
      card.classList.add("is-done");
      said.focus();
      onDone();
    } catch (error) {
      setBusy(false);
      const isGone = error instanceof Refused && (error.status === 404 || error.code === "REQUEST_ALREADY_ANSWERED");
      if (isGone) answering.remove();
      fill(said, element("span", { class: "wrong" }, error.message));
      said.focus();
    }
  };
  answering.append(...answerForm(sessionId, request, id, send));
  answering.append(element("p", { class: "fine" }, "Asked in event ", rawButton(sessionId, request.index)));
  return card;
}

/** A time that is told as how long ago, kept up to date by the page. */
export function agoTime(at, before = "") {
  const shown = time(at, before + ago(at));
  shown.dataset.ago = String(at);
  shown.dataset.before = before;
  return shown;
}

function explanation(request) {
  const parts = [];
  if (request.prompt && request.prompt !== titleOf(request)) parts.push(element("p", { class: "prompt" }, request.prompt));
  if (request.kind === "retry") {
    parts.push(
      element(
        "p",
        { class: "note" },
        "This tool was running when the host went away, and it is not declared safe to repeat: it may have done its " +
          "work already. Look outside whether it did before you let it run again.",
      ),
    );
  }
  if (request.args !== undefined) {
    parts.push(element("p", { class: "label" }, "With these arguments"), valueView(request.args));
  }
  if (request.kind === "authorization") parts.push(...authorizationFacts(request));
  if (request.scope === "session" && request.kind !== "authorization") {
    parts.push(element("p", { class: "note" }, "Approving it allows this tool for the rest of the session, with any arguments."));
  }
  if (typeof request.expiresAt === "number") {
    parts.push(element("p", { class: "note" }, `It expires on ${moment(request.expiresAt)}.`));
  }
  return parts;
}

function authorizationFacts(request) {
  const facts = [element("dt", {}, "Connection"), element("dd", {}, request.connection)];
  if (request.scope) facts.push(element("dt", {}, "Scope"), element("dd", {}, request.scope));
  if (request.authUrl) facts.push(element("dt", {}, "Address"), element("dd", {}, outsideLink(request.authUrl)));
  return [
    element("p", {}, "The agent wants to be let into a service in your name. Do that there, then say how it went."),
    element("dl", { class: "fields" }, ...facts),
  ];
}

function answerForm(sessionId, request, id, send) {
  const path = `session/${sessionId}/input`;
  const comment = element("input", { type: "text", id: `${id}-comment`, autocomplete: "off" });
  const note = () => (comment.value.trim() === "" ? {} : { comment: comment.value.trim() });
  const commentRow = element(
    "div",
    { class: "field" },
    element("label", { for: comment.id }, "Comment (kept in the log)"),
    comment,
  );
  const tell = (answer, done) => send(path, { requestId: request.requestId, ...answer, ...note() }, done);
  if (request.kind === "authorization") return authorizationForm(request, id, send);
  if (request.kind === "question") return [...questionForm(request, id, tell), commentRow];
  const [yes, no, wasYes, wasNo] =
    request.kind === "retry"
      ? ["Run it again", "Do not run it", "It may run again.", "It is not run again."]
      : ["Approve", "Deny", "Approved.", "Denied."];
  const what = titleOf(request);
  return [
    element(
      "div",
      { class: "row decision" },
      commentRow,
      button(yes, () => tell({ approved: true }, wasYes), { class: "primary", "aria-label": `${yes}: ${what}` }),
      button(no, () => tell({ approved: false }, wasNo), { class: "danger", "aria-label": `${no}: ${what}` }),
    ),
  ];
}

function questionForm(request, id, tell) {
  const options = Array.isArray(request.options) ? request.options : [];
  const choices = options.map((option) =>
    button(typeof option === "string" ? option : oneLine(pretty(option), OPTION_MAX), () => tell({ response: option }, "Answered.")),
  );
  const input = element("textarea", { id: `${id}-answer`, rows: "2" });
  const isJson = element("input", { type: "checkbox", id: `${id}-json` });
  const wrong = element("p", { class: "wrong", role: "status" });
  const submit = (event) => {
    event.preventDefault();
    let response = input.value;
    try {
      if (isJson.checked) response = parse(input.value);
      fill(wrong);
    } catch (error) {
      fill(wrong, `That is no JSON: ${error.message}`);
      return;
    }
    if (response !== "") tell({ response }, "Answered.");
  };
  const form = element(
    "form",
    { class: "own-answer", on: { submit } },
    element("label", { for: input.id }, choices.length > 0 ? "Or in your own words" : "Your answer"),
    input,
    element(
      "div",
      { class: "row" },
      element("button", { type: "submit", class: choices.length > 0 ? null : "primary" }, "Answer"),
      element("label", { class: "check" }, isJson, " as JSON"),
    ),
    wrong,
  );
  return [choices.length > 0 ? element("div", { class: "row choices", role: "group", "aria-label": "Choices" }, ...choices) : null, form].filter(
    Boolean,
  );
}

function authorizationForm(request, id, send) {
  const path = `authorization/${encodeURIComponent(request.requestId)}/complete`;
  const error = element("input", { type: "text", id: `${id}-error`, autocomplete: "off" });
  const fail = () => send(path, { success: false, error: error.value.trim() || "refused" }, "Told the agent that it failed.");
  return [
    element("div", { class: "field" }, element("label", { for: error.id }, "Reason, if it failed"), error),
    element(
      "div",
      { class: "row" },
      button("It is done", () => send(path, { success: true }, "Authorized."), { class: "primary" }),
      button("It failed", fail, { class: "danger" }),
    ),
  ];
}
