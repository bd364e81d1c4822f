// One page with a chat: does what its arguments say with the chat of `ai`, and prints what came of it.
//
// node ai_sdk_chat.mjs '{"url", "id", "headers"?, "body"?, "messages"?, "do": [["send", "text"], ["approve"], …]}'
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

// The response, whose connection breaks when its text has come up to some words.
function cut(response, words) {
  let seen = "";
  const decoder = new TextDecoder();
  const breaking = new TransformStream({
    transform(bytes, controller) {
      seen += decoder.decode(bytes, { stream: true });
      controller.enqueue(bytes);
      if (seen.includes(words)) controller.error(new TypeError("network error"));
    },
  });
  return new Response(response.body.pipeThrough(breaking), response);
}

const tools = (state) => chat.messages.flatMap((message) => message.parts).filter((part) => isToolUIPart(part) && part.state === state);

async function settled() {
  do await new Promise((resolve) => setTimeout(resolve, 5));
  while (chat.status === "submitted" || chat.status === "streaming");
}

const steps = {
  send: (text) => chat.sendMessage({ text }),
  sendAs: (id, text) => chat.sendMessage({ id, parts: [{ type: "text", text }] }),
  sendCut: async (text, words) => {
    aborted = words;
    await chat.sendMessage({ text });
    aborted = null;
  },
  sendStopped: async (text, words) => {
    const sending = chat.sendMessage({ text });
    while (!JSON.stringify(chat.messages.at(-1).parts).includes(words)) await new Promise((resolve) => setTimeout(resolve, 5));
    await chat.stop();
    await sending;
  },
  edit: (messageId, text) => chat.sendMessage({ messageId, text }),
  approve: (at = 0, reason) => chat.addToolApprovalResponse({ id: tools("approval-requested")[at].approval.id, approved: true, reason }),
  deny: (at = 0, reason) => chat.addToolApprovalResponse({ id: tools("approval-requested")[at].approval.id, approved: false, reason }),
  answer: (output) => {
    const question = tools("input-available").find((part) => part.type === "tool-ask");
    return chat.addToolOutput({ tool: "ask", toolCallId: question.toolCallId, output });
  },
  resume: () => chat.resumeStream(),
  regenerate: () => chat.regenerate(),
  load: async () => {
    const response = await fetch(`${given.url}/${encodeURIComponent(given.id)}/messages`, { headers: given.headers });
    chat.messages = await response.json();
  },
  stop: async () => {
    await fetch(`${given.url}/${encodeURIComponent(given.id)}/stop`, { method: "POST", headers: given.headers });
  },
  forget: () => {
    chat.messages = [];
  },
};

for (const [step, ...words] of given.do) {
  await steps[step](...words);
  await settled();
}
const { status, error, messages } = chat;
console.log(JSON.stringify({ status, error: error?.message, messages, finishes, data, requests }));
