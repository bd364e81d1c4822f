// Timeline: a turn's times as places on a line from 0 to 1, and as a sentence. No DOM, no clock.

import { count, duration } from "./format.js";

const WAIT_SHARE = 0.25; // of what ran: a wait of a weekend must not make the work invisible
const LEAST_MS = 1;

/**
 * The turn's segments with places, and a function from a time to a place.
 * A wait or a stop longer than a quarter of all that ran is drawn that long and marked `isBroken`.
 */
export function timeline(turn, now) {
  const segments = turn.segments.map((one) => ({ ...one, to: one.to ?? Math.max(now, one.from), isOpen: one.to === null }));
  const ran = total(segments, "run");
  const most = Math.max(ran * WAIT_SHARE, LEAST_MS);
  let sum = 0;
  for (const one of segments) {
    const length = Math.max(one.to - one.from, LEAST_MS);
    one.isBroken = one.kind !== "run" && length > most;
    one.weight = one.isBroken ? most : length;
    sum += one.weight;
  }
  let start = 0;
  for (const one of segments) {
    one.start = start / sum;
    one.width = one.weight / sum;
    start += one.weight;
  }
  return { segments, placeOf: (at) => placeOf(segments, at), ranMs: ran };
}

function placeOf(segments, at) {
  for (const one of segments) {
    if (at <= one.to) {
      const share = Math.max(0, at - one.from) / Math.max(one.to - one.from, LEAST_MS);
      return one.start + Math.min(1, share) * one.width;
    }
  }
  return 1;
}

function total(segments, kind) {
  return segments.reduce((sum, one) => sum + (one.kind === kind ? one.to - one.from : 0), 0);
}

/** What the picture says, in words. */
export function inWords(turn, now) {
  const { segments, ranMs } = timeline(turn, now);
  const waits = segments.filter((one) => one.kind === "wait");
  const words = [`ran ${duration(ranMs)}`];
  if (waits.length > 0) words.push(`waited ${duration(total(segments, "wait"))} for ${waitsFor(waits)}`);
  const downs = segments.filter((one) => one.kind === "down");
  if (downs.length > 0) words.push(`stopped ${duration(total(segments, "down"))} with the host`);
  words.push(count(turn.attempt, "attempt"));
  return words.join(", ");
}

const WAITS = {
  approval: "an approval",
  input: "an answer",
  authorization: "an authorization",
};

function waitsFor(waits) {
  return [...new Set(waits.map((one) => WAITS[one.why] ?? "a person"))].join(" and ");
}

/** What each segment is, for its row. */
export function segmentName(one) {
  if (one.kind === "run") return `Ran, attempt ${one.attempt}`;
  if (one.kind === "down") return "Host was away";
  return `Waited for ${WAITS[one.why] ?? "a person"}`;
}
