// One AG-UI client that does what the lines of its standard input say, and prints a line of JSON for all it is told.
import { createInterface } from "node:readline";
import { ZhinAgent } from "./zhin-agent.mjs";

const print = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
console.warn = (...words) => print({ warned: words.join(" ") });
console.error = () => {}; // the client repeats there what it throws
process.on("unhandledRejection", () => {}); // the client leaves one behind where a connection breaks

let agent;
const told = (run) =>
  run.then(
    ({ newMessages }) => print({ done: newMessages }),
    ({ message, status, payload }) => print({ failed: message, status, payload }),
  );
const actions = {
  open: ({ url, threadId, token }) => {
    const headers = token ? { authorization: `Bearer ${token}` } : {};
    agent = new ZhinAgent({ url, threadId, headers });
    agent.subscribe({ onEvent: ({ event }) => print({ event }) });
  },
  move: ({ url }) => (agent.url = url),
  say: ({ id, text }) => {
    agent.addMessage({ id, role: "user", content: text });
    told(agent.runAgent());
  },
  run: ({ resume }) => told(agent.runAgent({ resume })),
  connect: () => told(agent.connectAgent()),
  abort: () => agent.abortRun(),
  cancel: () => agent.cancel().then((status) => print({ status })),
  forget: () => (agent.pendingInterrupts = []),
  show: () => print({ messages: agent.messages, state: agent.state, pending: agent.pendingInterrupts }),
};

for await (const line of createInterface({ input: process.stdin })) {
  const { do: action, ...given } = JSON.parse(line);
  actions[action](given);
}
process.exit(0);
