import { HttpAgent, enforceOutgoingInput, runHttpRequest, transformHttpEventStream } from "@ag-ui/client";

/** The stock agent of AG-UI, which can also read a thread again and cancel its turn. */
export class ZhinAgent extends HttpAgent {
  /** Where `connectAgent` reads: the conversation as the host has it, then what the open turn still brings. */
  connect(input) {
    const request = () => this.fetch(`${this.url}/connect`, this.requestInit(enforceOutgoingInput(input)));
    return transformHttpEventStream(runHttpRequest(request), this.debugLogger);
  }

  /** Call it after a reload, or when an answer was cut off. */
  connectAgent(parameters, subscriber) {
    this.abortController = new AbortController();
    this.pendingInterrupts = []; // the host tells which are open
    return super.connectAgent(parameters, subscriber);
  }

  /** End the open turn. `abortRun` only stops listening: the turn goes on. */
  async cancel() {
    const response = await this.fetch(`${this.url}/cancel`, {
      method: "POST",
      headers: { ...this.headers, "Content-Type": "application/json" },
      body: JSON.stringify({ threadId: this.threadId }),
    });
    if (!response.ok) throw new Error(await response.text());
    return (await response.json()).status; // "accepted" or "no_active_turn"
  }
}
