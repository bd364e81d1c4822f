// A chat in the terminal with an agent on a zhin_host, by the AI SDK: what `useChat` does in a page, step by step.
//
//   npm install ai
//   zhin-host serve --protocol ai-sdk
//   node examples/ai_sdk_chat.mjs my-chat
//
// Say "write a note shopping: milk". Leave at any time, kill the host if you like, and start both again with the same
// name: the chat is as it was, and what waits for you still waits.
import { createInterface } from "node:readline";

import { DefaultChatTransport, generateId, getToolName, isToolUIPart, readUIMessageStream } from "ai";

const api = process.env.CHAT_API ?? "http://127.0.0.1:8787/ai-sdk/demo";
const chatId = process.argv[2] ?? "my-chat";
const transport = new DefaultChatTransport({ api });
const typed = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const shown = new Set();

/** Asks the person; null when there is nobody any more. */
async function ask(prompt) {
  process.stdout.write(prompt);
  const { value, done } = await typed.next();
  return done ? null : value;
}

/** Prints what was not printed yet. */
function show(message) {
  message.parts.forEach((part, at) => {
    const name = `${message.id} ${at}`;
    if (shown.has(name)) return;
    if (part.type === "text" && part.state !== "streaming") console.log(`${message.role}: ${part.text}`);
    else if (isToolUIPart(part) && part.state.startsWith("output-")) console.log(`[${getToolName(part)}: ${part.state}]`);
    else return;
    shown.add(name);
  });
}

/** Reads an answer to its end; `message` is what it goes on. */
async function read(stream, message) {
  const failed = (error) => console.log(`error: ${error.message}`);
  for await (const next of readUIMessageStream({ stream, message, onError: failed })) show((message = next));
  return message;
}

const send = (messages) =>
  transport.sendMessages({ chatId, messages: messages.slice(-1), trigger: "submit-message", abortSignal: undefined });

/** Answers all that the message asks; whether it asked anything, null when nobody answers. */
async function answer(message) {
  let isAnswered = false;
  for (const part of message.parts.filter(isToolUIPart)) {
    if (part.state === "approval-requested") {
      const said = await ask(`${part.approval.requestReason} ${JSON.stringify(part.input)} (y/n) `);
      if (said === null) return null;
      part.state = "approval-responded";
      part.approval.approved = said.startsWith("y");
      isAnswered = true;
    } else if (getToolName(part) === "ask" && part.state === "input-available") {
      const said = await ask(`${part.input.prompt} ${(part.input.options ?? []).join(", ")}: `);
      if (said === null) return null;
      Object.assign(part, { state: "output-available", output: said });
      isAnswered = true;
    }
  }
  return isAnswered;
}

const messages = await (await fetch(`${api}/${encodeURIComponent(chatId)}/messages`)).json();
messages.forEach(show);
const running = await transport.reconnectToStream({ chatId });
if (running) messages.splice(-1, 1, await read(running));

for (;;) {
  const last = messages.at(-1);
  const isAnswered = last?.role === "assistant" ? await answer(last) : false;
  if (isAnswered === null) break;
  if (isAnswered) {
    messages.splice(-1, 1, await read(await send(messages), last));
    continue;
  }
  const text = await ask("> ");
  if (text === null) break;
  messages.push({ id: generateId(), role: "user", parts: [{ type: "text", text }] });
  messages.push(await read(await send(messages)));
}
