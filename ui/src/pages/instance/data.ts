// What the page of an instance reads from the server, bound to the instance that is shown.
import { get, urlOf, type QueryValue } from "../../api/client.ts";
import type { Route } from "../../api/types.ts";

export type OperationKind = "activity" | "timer" | "event" | "child" | "update" | "start" | "send";
export type OperationOutcome = "open" | "completed" | "failed" | "cancelled";

export interface Attempt {
  queued_ms: number;
  began_ms: number;
  ended_ms: number;
  node?: string;
  error?: string;
}

export interface Operation {
  event: number;
  kind: OperationKind;
  name: string;
  unit?: string;
  turn: number;
  scheduled_ms: number;
  due_ms?: number;
  ended_ms?: number;
  ended_by?: number;
  outcome: OperationOutcome;
  error?: string;
  /** The child, or the instance that was started or sent to. */
  instance?: string;
  attempt?: number;
  state?: "queued" | "leased" | "waiting";
  since_ms?: number;
  attempts: Attempt[];
}

export interface TurnMark {
  number: number;
  at_ms: number;
}

export interface Bucket {
  from_ms: number;
  turns: number;
  scheduled: number;
  ended: number;
  failed: number;
  retried: number;
}

export interface Total {
  kind: OperationKind;
  name: string;
  count: number;
  open: number;
  failed: number;
  retried: number;
  queue_ms: number;
  run_ms: number;
  pause_ms: number;
  wait_ms: number;
}

export interface TimelineData {
  key: string;
  execution: number;
  current: number;
  /** The store's clock, up to which open operations last. */
  at_ms: number;
  last_turn?: number;
  operations: Operation[];
  others: number;
  turns: TurnMark[];
  turn_count?: number;
  buckets?: Bucket[];
  critical_path?: { event: number; from_ms: number; to_ms: number }[];
  totals?: Total[];
  more_totals?: boolean;
}

export interface EventRecord {
  id: number;
  unit?: string;
  event: object;
}

export interface TurnRecord {
  number: number;
  at_ms: number;
  events: EventRecord[];
}

export interface HistoryPage {
  key: string;
  execution: number;
  current: number;
  turns: TurnRecord[];
  before: number | null;
  after: number | null;
  partial: boolean;
}

/** What an instance waits for. Members beyond these depend on `kind`. */
export interface WaitRecord {
  text: string;
  remedy?: string;
  kind: string;
  name?: string;
  id?: string;
  event?: number;
  unit?: string;
  since_ms?: number;
  scheduled_ms?: number;
  due_ms?: number;
  until_ms?: number;
  timer_ms?: number;
  attempt?: number;
  max_attempts?: number;
  failed?: { at_ms: number; error: string };
  state?: string;
  tag?: string;
  node?: string;
  heard_ms?: number;
  details?: string;
  reason?: string;
  by?: string | null;
  status?: string | null;
  code?: string;
  attempts?: number;
  to?: string;
  waits?: WaitRecord[];
}

export interface WaitsData {
  id: string;
  key: string;
  status: string;
  at_ms: number;
  waits: WaitRecord[];
  more: number;
  untaken_events?: Record<string, number>;
  ending?: string;
  attributes?: Record<string, unknown>;
  published?: unknown;
  is_past?: boolean;
  execution?: number;
  turn?: number;
}

export interface Handlers {
  known: boolean;
  because?: string;
  queries: string[];
  updates: string[];
  events: string[];
}

export interface ExecutionRow {
  execution: number;
  turns: number;
  is_current: boolean;
  version?: string;
  began_ms?: number;
  last_ms?: number;
  ending?: string;
}

/** Reads a route of one instance. */
export async function read<T>(route: string, path: (string | number)[], query: Record<string, QueryValue>, signal?: AbortSignal): Promise<T> {
  const options = signal === undefined ? { path, query } : { path, query, signal };
  return (await get(route as Route as "version", options as object)) as unknown as T;
}

/** The address of a route of one instance, for the lines of a terminal. */
export function address(route: string, path: (string | number)[], query: Record<string, QueryValue> = {}): string {
  return urlOf(route, path, query);
}
