// The fold of events into what the page shows.

import assert from "node:assert/strict";
import { test } from "node:test";

import { emptyView, isOver, openTurn, reduce } from "../../zhin_host/console/static/reducer.js";

/** A session's events from [type, data] pairs, a second apart. */
function events(...rows) {
  return rows.map(([type, data = {}, timestamp], index) => ({ index, type, data, timestamp: timestamp ?? 1000 * (index + 1) }));
}

function viewOf(list, view = emptyView("ses_1")) {
  for (const event of list) reduce(view, event);
  return view;
}

const START = [
  ["session.started", { agent: "demo", continuationToken: "zhin:1" }],
  ["turn.started", { turnId: "turn_1", continuationToken: "zhin:1" }],
  ["step.started", { stepId: "step_1", turnId: "turn_1", status: "running" }],
  ["message.received", { turnId: "turn_1", message: "hello" }],
];
const END = [
  ["message.completed", { message: "", finishReason: "stop" }],
  ["turn.completed", { turnId: "turn_1" }],
  ["step.completed", { stepId: "step_1", turnId: "turn_1", status: "completed" }],
  ["session.waiting", { continuationToken: "zhin:2", parked: false, reason: "idle", pendingRequestIds: [] }],
];
const say = (messageDelta) => ["message.appended", { messageDelta }];
const shown = (turn) => turn.items.map((item) => [item.kind, item.text, item.discardedAt !== null]);

test("a turn is its message, its text as one run, and its end", () => {
  const view = viewOf(events(...START, say("Hel"), say("lo."), ...END));
  const [turn] = view.turns;
  assert.equal(turn.received, "hello");
  assert.deepEqual(shown(turn), [["text", "Hello.", false]]);
  assert.equal(turn.status, "completed");
  assert.equal(view.status, "waiting");
  assert.equal(view.token, "zhin:2");
  assert.equal(openTurn(view), null);
});

test("the same events again change nothing, and a gap is refused", () => {
  const list = events(...START, say("a"), say("b"), ...END);
  const view = viewOf(list);
  const before = JSON.stringify([view.turns, view.nextIndex]);
  for (const event of list) assert.equal(reduce(view, event), "known");
  assert.equal(JSON.stringify([view.turns, view.nextIndex]), before);
  assert.equal(reduce(view, { ...list[0], index: 99 }), "gap");
  assert.equal(view.nextIndex, list.length);
});

test("any cut of the stream gives the same view", () => {
  const list = events(...START, say("a"), ["reasoning.appended", { reasoningDelta: "why" }], say("b"), ...END);
  const whole = JSON.stringify(viewOf(list).turns);
  for (let cut = 0; cut <= list.length; cut += 1) {
    const view = viewOf(list.slice(0, cut));
    assert.equal(JSON.stringify(viewOf(list.slice(Math.max(0, cut - 3)), view).turns), whole);
  }
});

test("what discardFrom voids stays, marked, and a run of text is split where it stops to count", () => {
  const resumed = ["step.resumed", { turnId: "turn_1", attempt: 2, discardFrom: 5 }];
  const view = viewOf(events(...START, say("kept "), say("lost "), say("too"), resumed, say("again"), ...END));
  const [turn] = view.turns;
  assert.deepEqual(shown(turn), [
    ["text", "kept ", false],
    ["text", "lost too", true],
    ["text", "again", false],
  ]);
  assert.equal(turn.attempt, 2);
  assert.deepEqual(
    turn.segments.map((one) => [one.kind, one.attempt]),
    [["run", 1], ["down", 1], ["run", 2]],
  );
});

test("an action asked for again after it was voided is another one", () => {
  const ask = ["actions.requested", { callId: "call_1", toolName: "fetch", input: { url: "x" } }];
  const done = ["action.result", { callId: "call_1", toolName: "fetch", status: "completed", output: 1, durationMs: 5 }];
  const view = viewOf(events(...START, ask, ["step.resumed", { turnId: "turn_1", attempt: 2, discardFrom: 4 }], ask, done));
  assert.deepEqual(
    view.turns[0].items.map((item) => [item.status, item.discardedAt]),
    [["running", 5], ["completed", null]],
  );
});

test("a live answer keeps what was said", () => {
  const list = events(
    ...START,
    say("May I? "),
    ["actions.requested", { callId: "call_1", toolName: "publish", input: {} }],
    ["input.requested", { requestId: "req_1", kind: "approval", callId: "call_1", prompt: "Allow?", toolName: "publish", args: {} }],
    ["step.interrupted", { turnId: "turn_1", interruptKind: "approval", requestId: "req_1" }],
    ["session.waiting", { continuationToken: "zhin:1", parked: true, reason: "parked", pendingRequestIds: ["req_1"] }],
    ["input.completed", { requestId: "req_1", kind: "approval", outcome: "approved", approved: true, by: "ada", comment: "fine" }],
    ["step.resumed", { turnId: "turn_1", attempt: 1 }],
    ["action.result", { callId: "call_1", toolName: "publish", status: "completed", output: "/p", durationMs: 3 }],
    say("Done."),
    ...END,
  );
  const parked = viewOf(list.slice(0, 9));
  assert.deepEqual([...parked.requests.keys()], ["req_1"]);
  assert.equal(openTurn(parked).status, "parked");
  assert.equal(parked.turns[0].items[1].waits, 1);
  assert.ok(parked.isParked);
  const view = viewOf(list);
  assert.equal(view.requests.size, 0);
  const [turn] = view.turns;
  assert.deepEqual(turn.items.map((item) => item.kind), ["text", "action", "request", "text"]);
  assert.equal(turn.items[1].output, "/p");
  assert.equal(turn.items[1].waits, 0);
  assert.equal(turn.items[2].outcome, "approved");
  assert.equal(turn.items[2].answer.by, "ada");
  assert.deepEqual(turn.segments.map((one) => one.kind), ["run", "wait", "run"]);
});

test("a resumed turn voids what the failed one said after discardFrom, and tries its action again", () => {
  const ask = ["actions.requested", { callId: "call_1", toolName: "pay", input: { amount: 3 } }];
  const failed = ["action.result", { callId: "call_1", toolName: "pay", status: "failed", error: { message: "no" }, durationMs: 1 }];
  const paid = ["action.result", { callId: "call_1", toolName: "pay", status: "completed", output: "ok", durationMs: 1 }];
  const list = events(
    ...START,
    say("First. "), // 4
    ask, // 5
    failed, // 6
    say("Then."), // 7
    ["turn.failed", { turnId: "turn_1", code: "ACTION_FAILED", message: "pay failed", recoverable: true, callId: "call_1" }],
    ["step.interrupted", { turnId: "turn_1", interruptKind: "failure" }],
    ["session.waiting", { continuationToken: "zhin:1", parked: false, reason: "idle", pendingRequestIds: [] }],
    ["turn.started", { turnId: "turn_2", continuationToken: "zhin:3", resumes: "turn_1", discardFrom: 7 }],
    ["step.started", { turnId: "turn_2", status: "running" }],
    ["message.received", { turnId: "turn_2", message: "hello" }],
    paid,
  );
  const view = viewOf(list);
  const [first, second] = view.turns;
  assert.deepEqual(shown(first).map(([, text, isDiscarded]) => [text, isDiscarded]), [["First. ", false], [undefined, false], ["Then.", true]]);
  assert.ok(first.isRecoverable);
  assert.equal(first.items[1].status, "failed");
  assert.deepEqual([second.items[0].status, second.items[0].input], ["completed", { amount: 3 }]);
});

test("queued messages wait for their turn, and are dropped with the session", () => {
  const queued = (turnId) => ["message.queued", { turnId, message: turnId, continuationToken: `zhin:${turnId}` }];
  const list = events(...START, queued("turn_2"), queued("turn_3"), ["turn.cancelling", { turnId: "turn_1", reason: "interrupted" }]);
  const view = viewOf(list);
  assert.deepEqual(view.queue.map((row) => row.turnId), ["turn_2", "turn_3"]);
  assert.equal(view.token, "zhin:turn_3");
  assert.equal(openTurn(view).status, "cancelling");
  reduce(view, { index: 7, type: "turn.cancelled", timestamp: 9000, data: { turnId: "turn_1", reason: "interrupted", by: "ada" } });
  reduce(view, { index: 8, type: "turn.started", timestamp: 9000, data: { turnId: "turn_2", continuationToken: "zhin:turn_3" } });
  assert.deepEqual(view.queue.map((row) => row.turnId), ["turn_3"]);
  assert.equal(view.turns[0].by, "ada");
  reduce(view, { index: 9, type: "turn.completed", timestamp: 9000, data: { turnId: "turn_2" } });
  reduce(view, { index: 10, type: "session.completed", timestamp: 9000, data: { droppedTurnIds: ["turn_3"] } });
  assert.ok(isOver(view));
  assert.deepEqual([view.queue.length, view.end.dropped, view.status], [0, 1, "completed"]);
});

test("types of an agent's own, and types of a later host, are shown", () => {
  const view = viewOf(events(...START, ["x.progress", { done: 1 }], ["later.thing", { a: 1 }]));
  assert.deepEqual(view.turns[0].items.map((item) => item.type), ["x.progress", "later.thing"]);
});

test("ten thousand deltas are one run of text, quickly", () => {
  const list = events(...START, ...Array.from({ length: 10_000 }, (_, at) => say(`${at} `)), ...END);
  const began = performance.now();
  const view = viewOf(list);
  assert.ok(performance.now() - began < 1000);
  assert.equal(view.turns[0].items.length, 1);
  assert.ok(view.turns[0].items[0].text.endsWith("9999 "));
});
