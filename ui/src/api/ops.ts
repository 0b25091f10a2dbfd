// The answers about the whole store: causes, activities, nodes, versions, history of counts.
import { request } from "./client.ts";
import { readJson } from "./json.ts";
import type { Blocked, Count, Node, Operation } from "./types.ts";

export interface DivergenceRow {
  event: number;
  recorded: string;
  code: string;
  /** Whether record and code part here. */
  parts?: boolean;
}
export interface Divergence {
  execution: number;
  turn: number;
  event: number;
  difference: string;
  recorded: { kind?: string; line?: string };
  code: { kind?: string; line?: string };
  location?: string;
  neighbourhood: DivergenceRow[];
  hint: string;
}
/** Instances that the same fault blocks. The report is that of the instance that was tried last. */
export interface Cause extends Pick<Blocked, "code" | "cause" | "reason" | "report" | "attempts"> {
  name: string;
  version: string;
  count: number;
  first_ms: number;
  last_ms: number;
  last_tried_ms?: number;
  next_try_ms?: number;
  remedy: string;
  difference?: string;
  location?: string;
  divergence?: Divergence;
  /** Ids of some of the instances. */
  samples: string[];
  /** Selects the instances in a list or an operation. */
  filter: string;
  /** The nodes that have the code, if it is missing elsewhere. */
  registered_by?: string[];
}
export interface Task {
  /** `null` if it was deleted meanwhile. */
  id: string | null;
  orchestration: string | null;
  key: string;
  execution: number;
  event: number;
  name: string;
  state: "queued" | "leased" | "waiting";
  attempt: number;
  failed_attempts: number;
  tag?: string;
  due_ms?: number;
  since_ms?: number;
  heard_ms?: number;
  last_error?: string;
  node?: string;
}
export interface TaskGroup {
  name: string;
  tag?: string;
  state: "queued" | "leased" | "waiting";
  count: number;
  retried: number;
  max_attempt: number;
  /** How many live nodes can run them. */
  nodes: number;
  next_ms?: number;
  oldest_ms?: number;
  silent_since_ms?: number;
  errors: { text: string; count: number; key: string; event: number; sample: string }[];
  other_errors: number;
}
export interface StatsBucket {
  from_ms: number;
  started: Record<string, Count>;
  ended: Record<string, Count>;
}
export interface StatsHistory {
  buckets: StatsBucket[];
  width_ms: number;
  partial: boolean;
  /** Starts before this were not counted. */
  started_from_ms?: number;
}
export interface DurationRow {
  name: string;
  ended: number;
  failed: number;
  p50_ms: number;
  p95_ms: number;
  p99_ms: number;
  max_ms: number;
}
export interface Version {
  name: string;
  version: string;
  nodes: string[];
  open: Count;
  blocked: Count;
  started: Count;
  is_needed: boolean;
  oldest_ms?: number;
  last_start_ms?: number;
}
export interface Shard {
  shard: number;
  node: string | null;
  unowned_since_ms: number | null;
}
export interface Finding {
  kind: string;
  text: string;
  remedy: string;
  count: number;
  instances: string[];
}
export type FullNode = Node & { free_slots?: number | null };
/** `total` is how many the filter showed at the beginning. */
export type FullOperation = Operation & { total?: Count; ended_ms?: number; reason?: string; reasons?: { code: string; text: string; count: number }[] };

interface Answers {
  blocked: { causes: Cause[]; partial: boolean };
  tasks: { rows: Task[]; next: string | null; partial?: boolean };
  "tasks/groups": { groups: TaskGroup[]; scanned: number; partial: boolean };
  "stats/history": StatsHistory;
  "stats/durations": { rows: DurationRow[]; of: number; from_ms: number; at_ms: number };
  orchestrations: { orchestrations: Version[]; since_ms: number };
  nodes: { nodes: FullNode[]; at_ms: number };
  shards: { shards: Shard[]; lag_ms: number };
  doctor: { at_ms: number; findings: Finding[]; waiting: Finding[]; is_complete: boolean };
  preflights: { preflights: { label: string; at_ms: number; report: unknown }[] };
}

/** Reads one of these routes. */
export async function read<R extends keyof Answers>(
  route: R,
  signal: AbortSignal,
  query: Record<string, string | number> = {},
): Promise<Answers[R]> {
  const words = new URLSearchParams(Object.entries(query).map(([name, value]) => [name, String(value)])).toString();
  const response = await request("get", words === "" ? route : `${route}?${words}`, undefined, { signal });
  return readJson(await response.text()) as Answers[R];
}
