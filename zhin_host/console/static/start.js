// Start: the page on which a session is begun.

import { Composer } from "./composer.js";
import { element } from "./element.js";

/** The page on which a session is begun. */
export class StartPage {
  constructor(agents) {
    this.heading = element("h1", { tabindex: "-1" }, "Start a session");
    const choice = element("select", { id: "agent" }, ...agents.map(({ name }) => element("option", { value: name }, name)));
    const field = element("div", { class: "field" }, element("label", { for: "agent" }, "Agent"), choice);
    field.hidden = agents.length < 2;
    const toSend = (message) => ({
      path: "session",
      body: agents.length < 2 ? { message } : { message, agent: choice.value },
    });
    const onSent = ({ sessionId }) => (location.hash = `#/session/${sessionId}`);
    this.composer = new Composer("new", "First message", toSend, onSent, field);
    this.root = element(
      "div",
      { class: "start" },
      this.heading,
      element("p", { class: "hint" }, "Write to an agent. What it does is in the log, and it asks before it does what needs a person."),
      this.composer.root,
      agents.length === 1 ? toolsView(agents[0]) : null,
    );
  }

  close() {}
}

function toolsView(agent) {
  const rows = agent.tools.map((tool) =>
    element(
      "li",
      {},
      element("code", {}, tool.name),
      " ",
      tool.description ?? "",
      tool.approval === "never" ? null : element("span", { class: "chip", "data-status": "parked" }, `asks: ${tool.approval}`),
    ),
  );
  if (rows.length === 0) return null;
  return element("section", { class: "toolbox" }, element("h2", { class: "who" }, `Tools of ${agent.name}`), element("ul", {}, ...rows));
}
