// Puts the operations of two histories side by side, and finds where they first part.
import { textOf } from "../../../api/json.ts";
import type { OperationKind, TurnRecord } from "../data.ts";
import { payloadOf } from "../history/events.ts";
import { groupEvents, type Grouped } from "../history/operations.ts";

export interface Side {
  kind: OperationKind;
  name: string;
  unit: string;
  input: unknown;
  outcome: Grouped["outcome"];
  result: unknown;
  tookMs: number;
}

export type Difference = "name" | "input" | "outcome" | "length";
export const DIFFERENCES: readonly Difference[] = ["name", "input", "outcome", "length"];

export interface Pair {
  left: Side | null;
  right: Side | null;
  differs: ReadonlySet<Difference>;
}

function sidesOf(turns: readonly TurnRecord[]): Side[] {
  return groupEvents(turns).flatMap((group) => {
    if (group.kind === null || group.begun === null) return [];
    return [
      {
        kind: group.kind,
        name: group.name,
        unit: group.begun.unit ?? "",
        input: payloadOf(group.begun),
        outcome: group.outcome,
        result: group.ended === null ? undefined : payloadOf(group.ended),
        tookMs: group.endedMs - group.begunMs,
      },
    ];
  });
}

/** The nth operation of a unit beside the nth of the same unit: units run beside one another, in an order of their own. */
export function aligned(left: readonly TurnRecord[], right: readonly TurnRecord[]): Pair[] {
  const [ours, theirs] = [sidesOf(left), sidesOf(right)];
  const waiting = new Map<string, Side[]>();
  for (const side of theirs) waiting.set(side.unit, [...(waiting.get(side.unit) ?? []), side]);
  const pairs: Pair[] = ours.map((side) => pair(side, waiting.get(side.unit)?.shift() ?? null));
  const rest = new Set([...waiting.values()].flat());
  return [...pairs, ...theirs.filter((side) => rest.has(side)).map((side) => pair(null, side))];
}

function pair(left: Side | null, right: Side | null): Pair {
  const differs = new Set<Difference>();
  if (left === null || right === null) differs.add("length");
  else {
    if (left.kind !== right.kind || left.name !== right.name) differs.add("name");
    if (textOf(left.input) !== textOf(right.input)) differs.add("input");
    if (left.outcome !== right.outcome || textOf(left.result) !== textOf(right.result)) differs.add("outcome");
  }
  return { left, right, differs };
}

/** The first operation that differs in each way. */
export function partings(pairs: readonly Pair[]): Record<Difference, number | null> {
  const first = (kind: Difference) => {
    const index = pairs.findIndex((each) => each.differs.has(kind));
    return index < 0 ? null : index;
  };
  return { name: first("name"), input: first("input"), outcome: first("outcome"), length: first("length") };
}

/** One side as JSON text, for comparing line by line. */
export function detailOf(side: Side | null): string {
  if (side === null) return "null";
  const member = (name: string, value: unknown) => (value === undefined ? [] : [`${JSON.stringify(name)}:${textOf(value)}`]);
  return `{${[
    ...member("kind", side.kind),
    ...member("name", side.name),
    ...member("input", side.input),
    ...member("outcome", side.outcome),
    ...member("result", side.result),
  ].join(",")}}`;
}
