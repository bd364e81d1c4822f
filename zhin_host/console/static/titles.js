// Titles: the first message of a session stands for it in lists. Read from its log once, a few sessions at a time.

import { glance } from "./follower.js";
import { messageText, parse } from "./format.js";

const AT_ONCE = 2;
const EVENTS_MAX = 12; // the first message is the fourth event

const known = new Map(); // sessionId -> text, or null while it is not known
const wanted = [];
const listeners = new Set();
let fetching = 0;

/** The session's first message, or null when it is not known (yet); those who listen are told when it is. */
export function titleFor(sessionId) {
  if (!known.has(sessionId)) {
    known.set(sessionId, null);
    wanted.push(sessionId);
    while (fetching < AT_ONCE && wanted.length > fetching) fetchAll();
  }
  return known.get(sessionId);
}

/** Call `listener` after every title that becomes known; gives back how to stop that. */
export function onTitle(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

async function fetchAll() {
  fetching += 1;
  await null; // whoever asked has a list to finish first
  while (wanted.length > 0) {
    const sessionId = wanted.shift();
    try {
      known.set(sessionId, await firstMessage(sessionId));
    } catch {
      known.delete(sessionId); // asked for again with the next drawing
      continue;
    }
    for (const listener of listeners) listener();
  }
  fetching -= 1;
}

async function firstMessage(sessionId) {
  let message = null;
  await glance(sessionId, 0, (lines) => {
    const received = lines.slice(0, EVENTS_MAX).find((line) => line.includes('"type":"message.received"'));
    if (received !== undefined) message = messageText(parse(received).data.message);
    return message !== null || lines.length >= EVENTS_MAX;
  });
  return message;
}
