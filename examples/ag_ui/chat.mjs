// Talk to an agent of a host from a terminal, over AG-UI.
//
//   pip install 'zhin-host[ag-ui]' && zhin-host serve --protocol ag-ui
//   npm install @ag-ui/client
//   node chat.mjs http://127.0.0.1:8787/ag-ui/demo [THREAD]
//
// A thread that was named before is read again first, with what waits for an answer. ZHIN_TOKEN is sent as the token.
import { randomUUID } from "node:crypto";
import { createInterface } from "node:readline";
import { buildResumeArray } from "@ag-ui/client";
import { ZhinAgent } from "./zhin-agent.mjs";

const [url, threadId] = process.argv.slice(2);
const token = process.env.ZHIN_TOKEN;
const agent = new ZhinAgent({ url, threadId, headers: token ? { authorization: `Bearer ${token}` } : {} });
const print = (text) => process.stdout.write(text);
console.error = () => {}; // the client prints there what it throws
process.on("unhandledRejection", () => {}); // the client leaves one behind where a connection breaks

agent.subscribe({
  onMessagesSnapshotEvent: ({ event }) => {
    if (agent.messages.length === 0) event.messages.forEach(({ role, content }) => content && print(`${role}: ${content}\n`));
  },
  onTextMessageContentEvent: ({ event }) => print(event.delta),
  onTextMessageEndEvent: () => print("\n"),
  onToolCallEndEvent: ({ toolCallName, toolCallArgs }) => print(`[${toolCallName} ${JSON.stringify(toolCallArgs)}]\n`),
  onToolCallResultEvent: ({ event }) => print(`[= ${event.content}]\n`),
  onRunErrorEvent: ({ event }) => print(`! ${event.message}\n`),
});

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const ask = async (prompt) => {
  print(prompt);
  const { value, done } = await lines.next();
  if (done) process.exit(0);
  return value;
};

/** Ask for whatever the last run waits for, all of it: the run that answers goes on with the same turn. */
async function answerAll() {
  while (agent.pendingInterrupts.length > 0) {
    const answers = {};
    for (const { id, reason, message, metadata } of agent.pendingInterrupts) {
      const { args, options } = metadata.zhin;
      print(`? ${message} ${JSON.stringify(args ?? options ?? "")}\n`);
      const said = await ask(reason === "input_required" ? "answer: " : "allow? y/n: ");
      const payload = reason === "input_required" ? said : { approved: said === "y" };
      answers[id] = { status: "resolved", payload };
    }
    await agent.runAgent({ resume: buildResumeArray(agent.pendingInterrupts, answers) });
  }
}

if (threadId) await agent.connectAgent().catch(({ status, message }) => status === 404 || print(`! ${message}\n`));
await answerAll();
for (;;) {
  const content = await ask("> ");
  agent.addMessage({ id: randomUUID(), role: "user", content });
  await agent.runAgent().catch(({ message }) => print(`! ${message}\n`));
  await answerAll();
}
