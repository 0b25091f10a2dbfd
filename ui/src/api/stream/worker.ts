// The hub, shared by all tabs of a browser.
import { Hub } from "./hub.ts";
import type { ToHub } from "./topics.ts";

const hub = new Hub();
const scope = globalThis as unknown as { onconnect: (event: MessageEvent) => void };

scope.onconnect = (event) => {
  const port = event.ports[0];
  if (port === undefined) return;
  const take = hub.connect((message) => port.postMessage(message));
  port.onmessage = (message: MessageEvent<ToHub>) => take(message.data);
};
