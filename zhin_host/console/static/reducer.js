// Reducer: events folded into what the page shows. No DOM, no clock; the same events give the same view.
//
// Idempotent by index: an event below `nextIndex` changes nothing, one above it is a gap and is refused. What
// `discardFrom` voids stays in the view, marked: a person may see that something was said which does not count.

/** A session of which nothing is known yet. */
export function emptyView(sessionId) {
  return {
    sessionId,
    nextIndex: 0,
    updatedAt: 0,
    createdAt: 0,
    agent: "",
    owner: null,
    metadata: null,
    token: null,
    status: "running",
    isParked: false,
    isInterrupted: false,
    end: null, // {type, index, code?, message?, droppedTurnIds} once the session is over
    turns: [],
    queue: [], // {turnId, message, index, at}
    requests: new Map(), // the open ones by id, in the order of their making
    changed: new Set(), // turns that changed since somebody looked
  };
}

/** Whether the session takes nothing more. */
export function isOver(view) {
  return view.end !== null;
}

/** The turn that is open, or null. */
export function openTurn(view) {
  const last = view.turns.at(-1);
  return last !== undefined && last.endedAt === null ? last : null;
}

/**
 * Take one event in.
 * Returns "taken", "known" (seen before) or "gap" (events before it are missing; nothing changed).
 */
export function reduce(view, event) {
  if (event.index < view.nextIndex) return "known";
  if (event.index > view.nextIndex) return "gap";
  view.nextIndex = event.index + 1;
  view.updatedAt = event.timestamp;
  const turn = view.turns.at(-1);
  const fold = FOLDS[event.type] ?? (event.type.startsWith("x.") ? custom : unknown);
  fold(view, event, event.data, turn);
  const touched = view.turns.at(-1);
  if (touched !== undefined) {
    touched.lastIndex = event.index;
    touched.lastAt = event.timestamp;
    view.changed.add(touched);
  }
  return "taken";
}

const FOLDS = {
  "session.started"(view, event, data) {
    view.agent = data.agent;
    view.owner = data.owner ?? null;
    view.metadata = data.metadata ?? null;
    view.token = data.continuationToken;
    view.createdAt = event.timestamp;
  },

  "session.waiting"(view, event, data) {
    view.token = data.continuationToken;
    view.status = "waiting";
    view.isParked = data.parked;
    view.isInterrupted = data.reason === "interrupted";
  },

  "session.completed": sessionOver,
  "session.failed": sessionOver,

  "turn.started"(view, event, data) {
    view.token = data.continuationToken;
    view.status = "running";
    view.isParked = view.isInterrupted = false;
    view.queue = view.queue.filter((row) => row.turnId !== data.turnId);
    if (data.resumes !== undefined) discardResumed(view, data.resumes, data.discardFrom ?? event.index, event.index);
    view.turns.push(newTurn(event, data));
  },

  "turn.completed"(view, event, data, turn) {
    endTurn(turn, event, "completed");
    turn.usage = data.usage ?? turn.usage;
  },
  "turn.failed"(view, event, data, turn) {
    endTurn(turn, event, "failed");
    turn.code = data.code;
    turn.message = data.message;
    turn.isRecoverable = data.recoverable;
  },
  "turn.cancelling"(view, event, data, turn) {
    turn.status = "cancelling";
    turn.by = data.by ?? null;
    turn.reason = data.reason;
  },
  "turn.cancelled"(view, event, data, turn) {
    endTurn(turn, event, "cancelled");
    turn.by = data.by ?? turn.by;
    turn.reason = data.reason;
  },

  "step.started"(view, event, data, turn) {
    beginSegment(turn, "run", event.timestamp);
  },
  "step.completed"(view, event, data, turn) {
    endSegment(turn, event.timestamp);
  },
  "step.interrupted"(view, event, data, turn) {
    if (turn.endedAt !== null) endSegment(turn, event.timestamp);
    else if (turn.segments.at(-1)?.kind !== "wait") {
      beginSegment(turn, "wait", event.timestamp, data.interruptKind);
    }
  },
  "step.resumed"(view, event, data, turn) {
    const isAgain = data.attempt > turn.attempt;
    const last = turn.segments.at(-1);
    if (isAgain && last !== undefined && last.kind === "run") {
      // It ran when the host went away; from the last event on nobody knows.
      last.to = turn.lastAt;
      turn.segments.push({ kind: "down", from: turn.lastAt, to: null, attempt: turn.attempt, why: "restart" });
    }
    if (isAgain) {
      turn.attempts.push({ attempt: data.attempt, at: event.timestamp, index: event.index });
      turn.attempt = data.attempt;
    }
    if (data.discardFrom !== undefined) discard(turn, data.discardFrom, event.index);
    closeText(turn);
    beginSegment(turn, "run", event.timestamp);
    if (turn.status !== "cancelling") turn.status = "running";
    view.status = "running";
    view.isParked = false;
  },

  "message.queued"(view, event, data) {
    view.token = data.continuationToken;
    view.queue.push({ turnId: data.turnId, message: data.message, index: event.index, at: event.timestamp });
  },
  "message.received"(view, event, data, turn) {
    turn.received = data.message;
    turn.receivedIndex = event.index;
  },
  "message.appended"(view, event, data, turn) {
    say(turn, "text", event, data.messageDelta);
  },
  "message.completed"(view, event, data, turn) {
    closeText(turn);
    turn.finishReason = data.finishReason;
    turn.usage = data.usage ?? turn.usage;
    turn.messageIndex = event.index;
  },
  "reasoning.appended"(view, event, data, turn) {
    say(turn, "reasoning", event, data.reasoningDelta);
  },
  "reasoning.completed"(view, event, data, turn) {
    closeText(turn);
  },

  "actions.requested"(view, event, data, turn) {
    addAction(turn, event, data.callId, data.toolName, data.input);
  },
  "action.retrying"(view, event, data, turn) {
    const action = actionOf(view, turn, event, data);
    action.retries.push({ attempt: data.attempt, error: data.error, delayMs: data.delayMs, index: event.index });
    touch(action);
  },
  "action.result"(view, event, data, turn) {
    const action = actionOf(view, turn, event, data);
    action.status = data.status;
    action.output = data.output;
    action.error = data.error;
    action.durationMs = data.durationMs;
    action.resultIndex = event.index;
    action.endedAt = event.timestamp;
    touch(action);
  },

  "input.requested"(view, event, data, turn) {
    addRequest(view, turn, event, data.kind, data);
  },
  "authorization.required"(view, event, data, turn) {
    addRequest(view, turn, event, "authorization", data);
  },
  "input.completed"(view, event, data, turn) {
    closeRequest(view, turn, event, data.outcome, data);
  },
  "authorization.completed"(view, event, data, turn) {
    const outcome = data.success ? "authorized" : data.error === "cancelled" ? "cancelled" : "failed";
    closeRequest(view, turn, event, outcome, data);
  },

  "checkpoint.saved"(view, event, data, turn) {
    closeText(turn);
    turn.items.push(newItem("checkpoint", event, { state: data.state }));
  },
};

function newTurn(event, data) {
  return {
    turnId: data.turnId,
    startedIndex: event.index,
    startedAt: event.timestamp,
    endedAt: null,
    lastIndex: event.index,
    lastAt: event.timestamp,
    status: "running",
    resumes: data.resumes ?? null,
    agentVersion: data.agentVersion ?? null,
    received: null,
    receivedIndex: null,
    items: [],
    calls: new Map(), // callId -> the latest action of it
    requests: new Map(),
    segments: [], // {kind: run | wait | down, from, to, attempt, why}
    attempt: 1,
    attempts: [{ attempt: 1, at: event.timestamp, index: event.index }],
    code: null,
    message: null,
    isRecoverable: false,
    by: null,
    reason: null,
    usage: null,
    finishReason: null,
    messageIndex: null,
  };
}

function newItem(kind, event, more) {
  return { kind, index: event.index, at: event.timestamp, version: 0, discardedAt: null, ...more };
}

function touch(item) {
  item.version += 1;
}

function sessionOver(view, event, data) {
  view.status = event.type === "session.failed" ? "failed" : "completed";
  view.isParked = false;
  view.queue = [];
  view.end = {
    type: event.type,
    index: event.index,
    code: data.code ?? null,
    message: data.message ?? null,
    dropped: (data.droppedTurnIds ?? []).length,
  };
}

function endTurn(turn, event, status) {
  closeText(turn);
  turn.status = status;
  turn.endedAt = event.timestamp;
  endSegment(turn, event.timestamp);
}

// -- text: runs of deltas, each a string with the place of every event in it ------------------------------------------

function say(turn, kind, event, delta) {
  let item = turn.items.at(-1);
  if (item === undefined || item.kind !== kind || item.isClosed || item.discardedAt !== null) {
    closeText(turn);
    item = newItem(kind, event, { text: "", isClosed: false, places: [] });
    turn.items.push(item);
  }
  item.places.push(event.index, item.text.length);
  item.text += delta;
  touch(item);
}

function closeText(turn) {
  const item = turn.items.at(-1);
  if (item !== undefined && item.isClosed === false) {
    item.isClosed = true;
    touch(item);
  }
}

// -- what does not count ----------------------------------------------------------------------------------------------

/** Mark what the turn said, thought, asked for or told of its own in events `from` … `by` as discarded by `by`. */
function discard(turn, from, by) {
  const kept = [];
  for (const item of turn.items) {
    kept.push(item);
    if (!VOIDED.has(item.kind) || item.discardedAt !== null) continue;
    if (item.index >= from) {
      item.discardedAt = by;
      touch(item);
    } else if (item.places !== undefined && item.places.at(-2) >= from) {
      kept.push(split(item, from, by));
    }
  }
  turn.items = kept;
}

const VOIDED = new Set(["text", "reasoning", "action", "custom"]);

function split(item, from, by) {
  let at = 0;
  while (item.places[at] < from) at += 2;
  const offset = item.places[at + 1];
  const rest = { ...item, index: item.places[at], text: item.text.slice(offset), discardedAt: by };
  rest.places = item.places.slice(at).map((value, place) => (place % 2 ? value - offset : value));
  rest.isClosed = item.isClosed = true;
  rest.version = 0;
  item.text = item.text.slice(0, offset);
  item.places = item.places.slice(0, at);
  touch(item);
  return rest;
}

/** A resumed turn goes on from an earlier one, and that maybe from one before: all of the chain lose what is voided. */
function discardResumed(view, resumes, from, by) {
  const byId = new Map(view.turns.map((turn) => [turn.turnId, turn]));
  for (let turn = byId.get(resumes); turn !== undefined; turn = byId.get(turn.resumes)) {
    discard(turn, from, by);
    view.changed.add(turn);
  }
}

// -- actions and requests ---------------------------------------------------------------------------------------------

function addAction(turn, event, callId, toolName, input) {
  closeText(turn);
  const item = newItem("action", event, {
    callId,
    toolName,
    input,
    status: "running",
    waits: 0, // open requests about it
    beganAt: event.timestamp, // or when its last request was answered
    retries: [],
    output: undefined,
    error: undefined,
    durationMs: null,
    resultIndex: null,
    endedAt: null,
  });
  turn.items.push(item);
  turn.calls.set(callId, item);
  return item;
}

/** The action an event is about. A turn that is resumed tries an action of an earlier one again without asking anew. */
function actionOf(view, turn, event, data) {
  const known = turn.calls.get(data.callId);
  if (known !== undefined && known.resultIndex === null) return known;
  const earlier = known ?? view.turns.findLast((one) => one.calls.has(data.callId))?.calls.get(data.callId);
  return addAction(turn, event, data.callId, data.toolName, earlier?.input);
}

function addRequest(view, turn, event, kind, data) {
  closeText(turn);
  const item = newItem("request", event, { requestKind: kind, request: { ...data, kind, index: event.index } });
  item.outcome = null;
  item.answer = null;
  turn.items.push(item);
  tellAction(turn, data.callId, (action) => (action.waits += 1));
  turn.requests.set(data.requestId, item);
  view.requests.set(data.requestId, item);
  if (turn.status === "running") turn.status = "parked";
}

function closeRequest(view, turn, event, outcome, data) {
  const item = view.requests.get(data.requestId) ?? turn?.requests.get(data.requestId);
  view.requests.delete(data.requestId);
  if (item === undefined) return;
  tellAction(turn, item.request.callId, (action) => {
    action.waits -= 1;
    action.beganAt = event.timestamp;
  });
  item.outcome = outcome;
  item.answer = { ...data, index: event.index, at: event.timestamp };
  touch(item);
}

function tellAction(turn, callId, change) {
  const action = turn?.calls.get(callId);
  if (action === undefined) return;
  change(action);
  touch(action);
}

function custom(view, event, data, turn) {
  if (turn === undefined) return;
  closeText(turn);
  turn.items.push(newItem("custom", event, { type: event.type, data }));
}

/** A type that a later host may write: shown, so that nothing is hidden. */
function unknown(view, event, data, turn) {
  custom(view, event, data, turn);
}

// -- times ------------------------------------------------------------------------------------------------------------

function beginSegment(turn, kind, at, why = null) {
  endSegment(turn, at);
  turn.segments.push({ kind, from: at, to: null, attempt: turn.attempt, why });
}

function endSegment(turn, at) {
  const last = turn.segments.at(-1);
  if (last !== undefined && last.to === null) last.to = at;
}
