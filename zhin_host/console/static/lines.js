// Lines: NDJSON bytes cut at 0x0A and nowhere else, whatever the edges of the chunks are. No DOM.

const NEWLINE = 0x0a;

export class LineSplitter {
  #rest = [];
  #decoder = new TextDecoder();

  /** The whole lines that this chunk ends, without their newlines; blank ones (heartbeats) are left out. */
  push(chunk) {
    const end = chunk.lastIndexOf(NEWLINE);
    if (end < 0) {
      this.#rest.push(chunk);
      return [];
    }
    this.#rest.push(chunk.subarray(0, end));
    const text = this.#decoder.decode(joined(this.#rest));
    this.#rest = [chunk.slice(end + 1)];
    return text.split("\n").filter((line) => line !== "");
  }
}

function joined(parts) {
  if (parts.length === 1) return parts[0];
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}
