// The rows of the timeline: operations in their order, units as bands, children and earlier executions where they were unfolded.
import type { Operation, TimelineData } from "../data.ts";
import { attemptsOf, endOf } from "./bars.ts";
import type { Source } from "./sources.ts";

export type Order = "scheduled" | "name" | "start" | "length";
export const ORDERS: readonly [Order, ...Order[]] = ["scheduled", "name", "start", "length"];

export type Row =
  | { is: "operation"; key: string; depth: number; operation: Operation; source: Source; isUnfolded: boolean; isOnPath: boolean }
  | { is: "unit"; key: string; depth: number; unit: string; operations: readonly Operation[]; isFolded: boolean }
  | { is: "execution"; key: string; depth: number; execution: number; isUnfolded: boolean; source: Source | null }
  | { is: "earlier"; key: string; depth: number; source: Source; count: number }
  | { is: "waiting"; key: string; depth: number; source: Source };

export interface Arrangement {
  /** The execution that is shown, and those before it that were unfolded, by number. */
  root: Source;
  execution: number;
  before: ReadonlyMap<number, Source>;
  /** Unfolded children, by their ids. */
  children: ReadonlyMap<string, Source>;
  /** Folded units, by `id unit`. */
  foldedUnits: ReadonlySet<string>;
  order: Order;
  nowMs: number;
}

export function rowsOf(of: Arrangement): Row[] {
  const rows: Row[] = [];
  const shown = [...of.before.keys()];
  const first = Math.min(of.execution, ...shown);
  if (first > 1)
    rows.push({ is: "execution", key: `x${first - 1}`, depth: 0, execution: first - 1, isUnfolded: false, source: null });
  for (let execution = first; execution <= of.execution; execution++) {
    const source = execution === of.execution ? of.root : of.before.get(execution);
    if (source === undefined) continue;
    if (of.execution > 1) rows.push({ is: "execution", key: `x${execution}`, depth: 0, execution, isUnfolded: true, source });
    addSource(rows, of, source, 0, new Set());
  }
  return rows;
}

function addSource(rows: Row[], of: Arrangement, source: Source, depth: number, above: ReadonlySet<string>): void {
  const data = source.loaded.value.value;
  const name = `${source.id} ${source.execution ?? ""}`;
  if (data === undefined) {
    rows.push({ is: "waiting", key: `w ${name}`, depth, source });
    return;
  }
  const others = source.others;
  if (others > 0) rows.push({ is: "earlier", key: `e ${name}`, depth, source, count: others });
  const path = new Set(data.critical_path.map((step) => step.event));
  const operations = source.operations.value;
  const units = new Map<string, Operation[]>();
  if (of.order === "scheduled") {
    for (const operation of operations) {
      if (operation.unit === undefined) continue;
      const known = units.get(operation.unit);
      if (known === undefined) units.set(operation.unit, [operation]);
      else known.push(operation);
    }
  }
  const drawn = new Set<string>();
  for (const operation of sorted(operations, of)) {
    const members = operation.unit === undefined ? undefined : units.get(operation.unit);
    if (members === undefined || operation.unit === undefined) {
      addOperation(rows, of, source, operation, depth, path, above);
    } else if (!drawn.has(operation.unit)) {
      drawn.add(operation.unit);
      const isFolded = of.foldedUnits.has(`${source.id} ${operation.unit}`);
      rows.push({ is: "unit", key: `u ${name} ${operation.unit}`, depth, unit: operation.unit, operations: members, isFolded });
      if (!isFolded) for (const member of members) addOperation(rows, of, source, member, depth + 1, path, above);
    }
  }
}

function addOperation(
  rows: Row[],
  of: Arrangement,
  source: Source,
  operation: Operation,
  depth: number,
  path: ReadonlySet<number>,
  above: ReadonlySet<string>,
): void {
  const child = operation.kind === "child" && operation.instance !== undefined ? of.children.get(operation.instance) : undefined;
  const isUnfolded = child !== undefined && !above.has(child.id);
  const key = `${source.id} ${source.execution ?? ""} ${operation.event}`;
  rows.push({ is: "operation", key, depth, operation, source, isUnfolded, isOnPath: path.has(operation.event) });
  if (child !== undefined && isUnfolded) addSource(rows, of, child, depth + 1, new Set([...above, child.id]));
}

function sorted(operations: readonly Operation[], { order, nowMs }: Arrangement): readonly Operation[] {
  const length = (operation: Operation) => endOf(operation, nowMs) - operation.scheduled_ms;
  switch (order) {
    case "scheduled":
      return operations;
    case "name":
      return [...operations].sort((a, b) => a.kind.localeCompare(b.kind) || a.name.localeCompare(b.name) || a.event - b.event);
    case "start": {
      const start = (operation: Operation) => operation.attempts[0]?.began_ms ?? operation.since_ms ?? operation.scheduled_ms;
      return [...operations].sort((a, b) => start(a) - start(b) || a.event - b.event);
    }
    case "length":
      return [...operations].sort((a, b) => length(b) - length(a) || a.event - b.event);
  }
}

/** Steps from row to row: those that failed, were retried, or took longest. */
export type Stepping = "failed" | "retried" | "slowest";

export function stepTargets(rows: readonly Row[], by: Stepping, nowMs: number): number[] {
  const found = rows.flatMap((row, index) => (row.is === "operation" ? [{ index, operation: row.operation }] : []));
  if (by === "failed") return found.filter(({ operation }) => isFailing(operation)).map(({ index }) => index);
  if (by === "retried") return found.filter(({ operation }) => isRetried(operation)).map(({ index }) => index);
  const length = (operation: Operation) => endOf(operation, nowMs) - operation.scheduled_ms;
  return found
    .sort((a, b) => length(b.operation) - length(a.operation))
    .slice(0, 10)
    .map(({ index }) => index);
}

/** Failed, or open with an attempt that failed. */
export function isFailing(operation: Operation): boolean {
  return (
    operation.outcome === "failed" ||
    (operation.outcome === "open" && operation.attempts.some((attempt) => attempt.error !== undefined))
  );
}

export function isRetried(operation: Operation): boolean {
  return attemptsOf(operation) > 1 || operation.attempts.some((attempt) => attempt.error !== undefined);
}

/** From when to when all that is shown lasts. */
export function spanOf(sources: readonly Source[], nowMs: number, isLive: boolean): { startMs: number; endMs: number } {
  let [startMs, endMs] = [Infinity, -Infinity];
  const note = (data: TimelineData, operations: readonly Operation[]) => {
    const firstTurn = data.turns[0]?.at_ms ?? data.buckets[0]?.from_ms;
    if (firstTurn !== undefined) startMs = Math.min(startMs, firstTurn);
    const lastTurn = data.turns.at(-1)?.at_ms;
    if (lastTurn !== undefined) endMs = Math.max(endMs, lastTurn);
    for (const operation of operations) {
      startMs = Math.min(startMs, operation.scheduled_ms);
      endMs = Math.max(endMs, operation.ended_ms ?? operation.scheduled_ms);
    }
  };
  for (const source of sources) {
    const data = source.loaded.value.value;
    if (data !== undefined) note(data, source.zoomed.value === null ? source.operations.value : data.operations);
  }
  if (isLive || endMs === -Infinity) endMs = Math.max(endMs, nowMs);
  if (startMs === Infinity) startMs = endMs - 1_000;
  return { startMs, endMs: Math.max(endMs, startMs + 1) };
}
