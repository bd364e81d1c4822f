// Format: what others wrote as text a person can trust, and times as a person reads them. No DOM.

// Control, bidirectional and other invisible characters, but for newline, tab and the joiners of words and emojis.
const HIDDEN = /[^\P{C}\n\t\u200c\u200d]|[\u2028\u2029]/gu;

/** The text with what a screen would obey or hide shown as an escape, the way the command line shows it. */
export function visible(text) {
  return text.replace(HIDDEN, (one) => {
    const code = one.codePointAt(0);
    if (code < 0x100) return "\\x" + code.toString(16).padStart(2, "0");
    if (code < 0x10000) return "\\u" + code.toString(16).padStart(4, "0");
    return "\\U" + code.toString(16).padStart(8, "0");
  });
}

/** JSON from text; integers that a double cannot hold become BigInt, so that a person sees the number that was meant. */
export function parse(text) {
  return /\d{16}/.test(text) ? JSON.parse(text, exactly) : JSON.parse(text);
}

function exactly(key, value, context) {
  if (typeof value !== "number" || Number.isSafeInteger(value)) return value;
  return context !== undefined && /^-?\d+$/.test(context.source) ? BigInt(context.source) : value;
}

/** A value as JSON over several lines. */
export function pretty(value) {
  const text = JSON.stringify(value, (key, one) => (typeof one === "bigint" ? raw(one) : one), 2);
  return text === undefined ? "" : text;
}

function raw(big) {
  return JSON.rawJSON === undefined ? String(big) : JSON.rawJSON(String(big));
}

/** A message as text: its parts, a newline between them. */
export function messageText(message) {
  if (typeof message === "string") return message;
  return Array.isArray(message) ? message.map((part) => String(part?.text ?? "")).join("\n") : pretty(message);
}

/** The text on one line of at most `most` characters. */
export function oneLine(text, most = 120) {
  const line = text.replace(/\s+/gu, " ").trim();
  return line.length > most ? line.slice(0, most - 1).replace(/[\ud800-\udbff]$/, "") + "…" : line;
}

/** How long, in the unit that fits. */
export function duration(ms) {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`;
  const minutes = Math.floor(ms / 60_000);
  if (minutes < 60) return `${minutes} min ${Math.floor((ms % 60_000) / 1000)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** How long ago, in the largest unit. */
export function ago(ms, now = Date.now()) {
  const past = now - ms;
  if (past < 10_000) return "just now";
  if (past < 60_000) return `${Math.floor(past / 1000)} s ago`;
  if (past < 3_600_000) return `${Math.floor(past / 60_000)} min ago`;
  if (past < 172_800_000) return `${Math.floor(past / 3_600_000)} h ago`;
  return `${Math.floor(past / 86_400_000)} days ago`;
}

/** A moment in the reader's own words for it. */
export function moment(ms) {
  return new Date(ms).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
}

/** A time of day, to the second. */
export function clock(ms) {
  return new Date(ms).toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
}

/** The end of an id: what tells it from its neighbours. */
export function shortId(id) {
  return id.length > 12 ? "…" + id.slice(-8) : id;
}

/** `1 event`, `2 events`. */
export function count(number, noun) {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}
