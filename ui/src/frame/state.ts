// What the frame knows about the server: who asks and what they may do, counts, whether a runtime runs, whether the page is
// frozen.
import { computed, effect, signal } from "@preact/signals";

import { get, onServerTime, onUnauthenticated, post, remove } from "../api/client.ts";
import { Loaded } from "../api/load.ts";
import { connection, follow, reconnect } from "../api/stream/stream.ts";
import type { Node, Operation, Session, Stats } from "../api/types.ts";
import { heldAt, noteServerTime } from "../design/time.tsx";
import { place } from "../router/router.ts";

export const session = new Loaded<Session>((signal) => get("session", { signal }));
export const stats = signal<Stats | null>(null);
export const operations = signal<readonly Operation[]>([]);
export const nodes = new Loaded<Node[]>(async (signal) => (await get("nodes", { signal })).nodes);
/** Versions of the server: the one that this page came from, and the one that answers now. */
export const version = signal<{ first: string; now: string } | null>(null);

/** Whether somebody has to log in before anything is shown. */
export const needsLogin = computed(() => session.value.value?.role === null);

/** Why the person cannot change anything, or `null` if they can. Controls show it. */
export const whyReadOnly = computed((): string | null => {
  if (connection.value.is === "away") return connection.value.why ?? "The server cannot be reached.";
  const role = session.value.value?.role;
  if (role === "operator") return null;
  return role === "reader" ? "Only operators can do this; you are a reader." : "Log in first.";
});

/** Since when no runtime works on the store, or `null` if one does or that is not known. */
export const noRuntimeSince = computed((): { since: number | null } | null => {
  const runtime = stats.value?.runtime;
  return runtime === undefined || runtime.live > 0 ? null : { since: runtime.last_seen_ms };
});

/** While a page is frozen it shows what it had then; changes wait. Going elsewhere ends it. */
export const frozenSince = heldAt;
const pathNow = computed(() => place.value.path.join("/"));
effect(() => {
  void pathNow.value;
  frozenSince.value = null;
});

const NODES_MS = 5_000;
let isRunning = false;

/** Begins to follow the server. Called once there is somebody who may look. */
function run(): void {
  if (isRunning) return;
  isRunning = true;
  follow({ kind: "stats" }, { message: (_, data) => (stats.value = data as Stats) });
  follow({ kind: "operations" }, { message: (_, data) => (operations.value = data as Operation[]) });
  void nodes.reload();
  setInterval(() => {
    if (document.visibilityState === "visible" && connection.value.is === "live") void nodes.reload();
  }, NODES_MS);
  effect(() => {
    // After every reconnect the server may be another version.
    if (connection.value.is === "live") void readVersion();
  });
}

async function readVersion(): Promise<void> {
  try {
    const { server } = await get("version");
    version.value = { first: version.peek()?.first ?? server, now: server };
  } catch {
    // The banner about the connection says what is wrong.
  }
}

export async function begin(): Promise<void> {
  onServerTime.call = noteServerTime;
  onUnauthenticated.call = () => {
    if (session.value.peek()?.role !== null) void session.reload();
  };
  await session.reload();
}
effect(() => {
  const role = session.value.value?.role;
  if (role === "reader" || role === "operator") run();
});
effect(() => {
  // The stream is refused when a session has ended.
  const state = connection.value;
  if (state.is === "refused" && state.status === 401) void session.reload();
});

export async function logIn(token: string): Promise<void> {
  session.value.value = await post("session", { token });
  reconnect();
}

export async function logOut(): Promise<void> {
  await remove("session");
  await session.reload();
}
