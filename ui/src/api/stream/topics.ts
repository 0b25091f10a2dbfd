// What can be followed live, and the messages between a page and the hub.

export type Topic =
  { kind: "instance"; id: string } | { kind: "list"; filter: string } | { kind: "stats" } | { kind: "operations" };

/** Names a topic: pages that ask for the same thing share it. */
export function nameOf(topic: Topic): string {
  switch (topic.kind) {
    case "instance":
      return `i:${topic.id}`;
    case "list":
      return `l:${topic.filter}`;
    default:
      return topic.kind;
  }
}

export type ConnectionState =
  /** Nothing is followed yet, or the first connection is being made. */
  | { is: "connecting" }
  | { is: "live" }
  /** The server does not answer, or answers that it cannot serve now (`why`). `retryAt` is when it is tried again. */
  | { is: "away"; since: number; retryAt: number; why: string | null }
  /** The server answers, and refuses the stream. */
  | { is: "refused"; status: number; code: string | null };

export type ToHub =
  | { say: "hello"; api: string }
  | { say: "follow"; number: number; topic: Topic }
  | { say: "leave"; number: number }
  /** The page still exists. */
  | { say: "here" }
  /** Do not wait for the next try. */
  | { say: "now" }
  | { say: "bye" };

export type ToPage =
  /** `gap`: something may have happened that no message tells; read it with GET now. */
  | { say: "open"; number: number; gap: boolean }
  /** `data` is JSON text, which the page reads: a payload's digits must not be lost on the way. */
  | { say: "message"; number: number; event: string; data: string }
  | { say: "state"; state: ConnectionState }
  /** The server was heard from. */
  | { say: "heard"; at: number };
