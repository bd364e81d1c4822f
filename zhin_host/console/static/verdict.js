// Verdict: what the audit found, for a person.

import { element } from "./element.js";
import { count } from "./format.js";
import { rawButton } from "./values.js";

/** The audit's verdict as parts of a dialog. */
export function verdictView(sessionId, verdict) {
  const facts = [
    element("dt", {}, "Events"),
    element("dd", {}, verdict.events.toLocaleString()),
    element("dt", {}, "Bytes"),
    element("dd", {}, verdict.bytes.toLocaleString()),
    element("dt", {}, "Last sum"),
    element("dd", {}, element("code", {}, verdict.lastSum)),
  ];
  const faults = verdict.faults.map((fault) =>
    element("li", {}, rawButton(sessionId, fault.index), ` at byte ${fault.byte.toLocaleString()}: ${fault.message}`),
  );
  return [
    verdict.ok
      ? element("p", { class: "verdict is-good", role: "status" }, "Nothing is wrong: the log is whole, in order and unchanged.")
      : element("p", { class: "verdict is-bad", role: "alert" }, `${count(verdict.faults.length, "fault")} found.`),
    faults.length > 0 ? element("ol", { class: "faults" }, ...faults) : null,
    element("dl", { class: "fields" }, ...facts),
    element("p", { class: "hint" }, "Keep the last sum elsewhere: it proves later that nothing before it was changed."),
  ];
}
