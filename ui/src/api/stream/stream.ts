// Live changes, as a page sees them: topics to follow, whether the server is there, and how fresh what is shown is.
import { signal, type ReadonlySignal } from "@preact/signals";

import { API } from "../client.ts";
import { readJson } from "../json.ts";
import { Hub } from "./hub.ts";
import type { ConnectionState, ToHub, ToPage, Topic } from "./topics.ts";
import worker from "./worker.ts?sharedworker&url";

export type { ConnectionState, Topic } from "./topics.ts";

export interface Follower {
  /** A message of the stream: `turn`, `instance`, `reset`, `gone`, `pruned`; `list`, `changes`; `stats`; `operations`. */
  message(event: string, data: unknown): void;
  /** The stream is open. With a gap, changes may have been missed: read with GET, and drop what messages tell twice. */
  open?(gap: boolean): void;
}

const state = signal<ConnectionState>({ is: "connecting" });
const heardAt = signal(0);

/** Whether the server is there. */
export const connection: ReadonlySignal<ConnectionState> = state;
/** When the server was last heard from; at least every 15 s while all is well. */
export const lastHeard: ReadonlySignal<number> = heardAt;

const followers = new Map<number, { topic: Topic; follower: Follower }>();
let next = 1;
let send: ((message: ToHub) => void) | null = null;

/** Follows a topic until the returned function is called. */
export function follow(topic: Topic, follower: Follower): () => void {
  const number = next++;
  followers.set(number, { topic, follower });
  hub()({ say: "follow", number, topic });
  return () => {
    followers.delete(number);
    hub()({ say: "leave", number });
  };
}

/** Tries to reach the server now. */
export function reconnect(): void {
  hub()({ say: "now" });
}

function receive(message: ToPage): void {
  switch (message.say) {
    case "state":
      if (message.state.is !== state.value.is || message.state.is !== "live") state.value = message.state;
      break;
    case "heard":
      heardAt.value = message.at;
      break;
    case "open":
      followers.get(message.number)?.follower.open?.(message.gap);
      break;
    case "message":
      followers.get(message.number)?.follower.message(message.event, readJson(message.data));
      break;
  }
}

function hub(): (message: ToHub) => void {
  if (send !== null) return send;
  send = connectHub();
  send({ say: "hello", api: API });
  setInterval(() => send?.({ say: "here" }), 30_000);
  addEventListener("pagehide", () => send?.({ say: "bye" }));
  addEventListener("pageshow", (event) => {
    // The page was kept by the browser while the hub forgot it.
    if (!event.persisted) return;
    for (const [number, { topic }] of followers) send?.({ say: "follow", number, topic });
  });
  addEventListener("online", () => reconnect());
  return send;
}

function connectHub(): (message: ToHub) => void {
  if (typeof SharedWorker === "undefined") return new Hub().connect(receive);
  const { port } = new SharedWorker(trusted(worker), { type: "module", name: "perennial" });
  port.onmessage = (event: MessageEvent<ToPage>) => receive(event.data);
  return (message) => port.postMessage(message);
}

interface TrustedTypes {
  createPolicy(name: string, rules: { createScriptURL: (url: string) => string }): { createScriptURL(url: string): string };
}

/** The server's policy allows scripts only by URLs that a policy of this page made, and this is the only one. */
function trusted(url: string): string {
  const types = (globalThis as { trustedTypes?: TrustedTypes }).trustedTypes;
  if (types === undefined) return url;
  const only = (asked: string) => {
    if (asked !== worker) throw new TypeError("not a script of the dashboard");
    return asked;
  };
  return types.createPolicy("perennial", { createScriptURL: only }).createScriptURL(url);
}
