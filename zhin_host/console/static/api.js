// Api: calls of the host, with the token, and errors as the host words them.

import { authorization, renew } from "./access.js";
import { parse, pretty } from "./format.js";

const BASE = new URL("../zhin/v1/", import.meta.url);
const TIMEOUT_MS = 30_000;
const TRIES = 3; // of a call that may be repeated, when the connection breaks
const PAUSE_MS = 700;

/** The host refused; `message` is its sentence, which says what to do. */
export class Refused extends Error {
  constructor(status, body) {
    super(typeof body?.message === "string" ? body.message : `The host answered ${status}.`);
    this.status = status;
    this.code = body?.error ?? "";
    this.body = body ?? {};
  }
}

/** The host did not answer at all. */
export class Unreachable extends Error {
  constructor() {
    super("The host does not answer; it may be restarting. What you just did may not have reached it: do it again once it is back.");
  }
}

/** GET, answered with the JSON. */
export function get(path, query = {}) {
  return repeated(() => json("GET", path, { query }));
}

/**
 * POST a JSON body. With a `key` it carries an Idempotency-Key and is repeated when the answer gets lost; answers to
 * requests are safe to repeat without one.
 */
export function post(path, body, { key = null, isRepeatable = false } = {}) {
  const send = () => json("POST", path, { body, key });
  return key !== null || isRepeatable ? repeated(send) : send();
}

/** A stream's response, its head checked; the caller reads and aborts it. */
export function openStream(sessionId, startIndex, until, signal) {
  return request("GET", `session/${sessionId}/stream`, { query: { startIndex, until }, signal });
}

/** A key for one message: the same message sent again carries the same one. */
export function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

async function json(method, path, options) {
  const timeout = AbortSignal.timeout(TIMEOUT_MS);
  const response = await request(method, path, { ...options, signal: timeout });
  try {
    return parse(await response.text());
  } catch (error) {
    throw error instanceof SyntaxError ? new Refused(response.status, null) : new Unreachable();
  }
}

async function request(method, path, { query = {}, body, key = null, signal }) {
  const url = new URL(path, BASE);
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") url.searchParams.set(name, value);
  }
  for (;;) {
    const headers = { ...authorization() };
    if (body !== undefined) headers["content-type"] = "application/json";
    if (key !== null) headers["idempotency-key"] = key;
    const response = await reached(url, {
      method,
      headers,
      body: body === undefined ? undefined : pretty(body),
      signal,
      cache: "no-store",
      credentials: "same-origin", // a login of the app around the host may be a cookie; the host itself takes none
      redirect: "error",
    });
    if (response.ok) return response;
    const refusal = await refusalOf(response);
    if (refusal.status !== 401) throw refusal;
    await renew(headers, refusal.message);
  }
}

async function reached(url, options) {
  try {
    return await fetch(url, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Unreachable();
  }
}

async function refusalOf(response) {
  try {
    return new Refused(response.status, parse(await response.text()));
  } catch {
    return new Refused(response.status, null);
  }
}

async function repeated(send) {
  for (let tries = 1; ; tries += 1) {
    try {
      return await send();
    } catch (error) {
      const isPassing = error instanceof Unreachable || error.code === "SHUTTING_DOWN";
      if (!isPassing || tries === TRIES) throw error;
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS * tries));
    }
  }
}
