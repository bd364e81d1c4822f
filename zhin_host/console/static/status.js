// Status: how a session stands, in the words of the page. No DOM.

/** How a session stands, in a word. */
export function statusOf(row) {
  if (row.brokenAt !== undefined) return "broken";
  if (row.status === "waiting" && !row.parked) return row.isInterrupted ? "interrupted" : "idle";
  if (row.status === "waiting") return "parked";
  return row.status;
}

export const STATUS_WORDS = {
  running: "running",
  parked: "waits for you",
  idle: "at rest",
  interrupted: "interrupted by a restart",
  completed: "completed",
  failed: "failed",
  broken: "log is broken",
};
