// A page with a chat: does what its arguments say with the chat of `ai`, and prints what came of it.
//
// node ai_sdk_chat.mjs '{"url", "id", "headers"?, "body"?, "messages"?, "do": [["send", "text"], ["approve"], …]}'
import { writeFileSync } from "node:fs";

import {
  AbstractChat,
  DefaultChatTransport,
  isToolUIPart,
  lastAssistantMessageIsCompleteWithApprovalResponses,
  lastAssistantMessageIsCompleteWithToolCalls,
} from "ai";

const given = JSON.parse(process.argv[2]);

class State {
  status = "ready";
  error = undefined;

  constructor(messages) {
    this.messages = messages;
  }

  pushMessage = (message) => {
    this.messages = [...this.messages, message];
  };

  popMessage = () => {
    this.messages = this.messages.slice(0, -1);
  };

  replaceMessage = (index, message) => {
    this.messages = this.messages.with(index, structuredClone(message));
  };

  snapshot = structuredClone;
}

class Chat extends AbstractChat {
  constructor({ messages, ...init }) {
    super({ ...init, state: new State(messages) });
  }
}

const finishes = [];
const data = [];
let requests = 0;
let aborted = null;

const chat = new Chat({
  id: given.id,
  messages: given.messages ?? [],
  transport: new DefaultChatTransport({
    api: given.url,
    headers: given.headers,
    body: given.body,
    prepareReconnectToStreamRequest: ({ api, id }) => ({
      api: `${api}/${encodeURIComponent(id)}/stream${given.reconnect ?? ""}`,
      headers: given.headers,
    }),
    fetch: async (...request) => {
      requests += 1;
      const response = await fetch(...request);
      if (aborted === null) return response;
      return cut(response, aborted);
    },
  }),
  sendAutomaticallyWhen: (all) =>
    lastAssistantMessageIsCompleteWithApprovalResponses(all) || lastAssistantMessageIsCompleteWithToolCalls(all),
  onFinish: ({ finishReason, isAbort, isDisconnect, isError }) =>
    finishes.push({ finishReason, isAbort, isDisconnect, isError }),
  onData: (part) => data.push(part),
});

// The response, whose connection breaks when the page shows some words.
function cut(response, words) {
  const reader = response.body.getReader();
  const broken = until(() => isShown(words)).then(() => {
    throw new TypeError("network error");
  });
  broken.catch(() => reader.cancel());
  const pull = async (controller) => {
    const { done, value } = await Promise.race([broken, reader.read()]);
    if (done) controller.close();
    else controller.enqueue(value);
  };
  return new Response(new ReadableStream({ pull }, { highWaterMark: 0 }), response);
}

const tools = (state) =>
  chat.messages.flatMap((message) => message.parts).filter((part) => isToolUIPart(part) && part.state === state);

// Runs until the condition holds; what it waits for is what this page is told, or does by itself.
async function until(holds) {
  do await new Promise((resolve) => setTimeout(resolve, 5));
  while (!holds());
}

const isShown = (words) => JSON.stringify(chat.messages.at(-1)?.parts).includes(words);

const respond = (approved, at = 0, reason) =>
  chat.addToolApprovalResponse({ id: tools("approval-requested")[at].approval.id, approved, reason });

const ask = (method, path) =>
  fetch(`${given.url}/${encodeURIComponent(given.id)}/${path}`, { method, headers: given.headers });

let begun;

// Those that the page does while an answer comes in.
const asides = {
  begin: (text) => {
    begun = chat.sendMessage({ text });
  },
  beginResume: () => {
    begun = chat.resumeStream();
  },
  streams: () => until(() => chat.status === "streaming"),
  see: (words) => until(() => isShown(words)),
  tell: (words) => console.log(words),
  touch: (path) => writeFileSync(path, ""),
  approveMeanwhile: () => respond(true),
  stop: async () => {
    await ask("POST", "stop");
    await begun;
  },
  abort: () => chat.stop(),
};

const steps = {
  settle: () => begun,
  send: (text) => chat.sendMessage({ text }),
  sendAs: (id, text) => chat.sendMessage({ id, parts: [{ type: "text", text }] }),
  sendCut: async (text, words) => {
    aborted = words;
    await chat.sendMessage({ text });
    aborted = null;
  },
  edit: (text) => chat.sendMessage({ messageId: chat.messages.at(-2).id, text }),
  approve: (at, reason) => respond(true, at, reason),
  deny: (at, reason) => respond(false, at, reason),
  answer: (output) => {
    const question = tools("input-available").find((part) => part.type === "tool-ask");
    return chat.addToolOutput({ tool: "ask", toolCallId: question.toolCallId, output });
  },
  resume: () => chat.resumeStream(),
  regenerate: () => chat.regenerate(),
  load: async () => {
    chat.messages = await (await ask("GET", "messages")).json();
  },
};

for (const [step, ...words] of given.do) {
  await (asides[step] ?? steps[step])(...words);
  if (!(step in asides)) await until(() => chat.status === "ready" || chat.status === "error");
}
const { status, error, messages } = chat;
console.log(JSON.stringify({ status, error: error?.message, messages, finishes, data, requests }));
