// What the page of an instance reads from the server, bound to the instance that is shown.
import { get, urlOf, type QueryValue } from "../../api/client.ts";
import type { Answer, Route, Wait } from "../../api/types.ts";

export type TimelineData = Answer<"instances/{id}/timeline">;
export type Operation = TimelineData["operations"][number];
export type OperationKind = Operation["kind"];
export type TurnMark = TimelineData["turns"][number];
export type Bucket = TimelineData["buckets"][number];
export type Total = TimelineData["totals"][number];

export type HistoryPage = Answer<"instances/{id}/history">;
export type TurnRecord = HistoryPage["turns"][number];
export type EventRecord = TurnRecord["events"][number];

export type WaitsData = Answer<"instances/{id}/waits">;
/** What an instance waits for. Members depend on `kind`. */
export type WaitRecord = Wait;

export type Handlers = Answer<"instances/{id}/handlers">;
export type ExecutionRow = Answer<"instances/{id}/executions">["rows"][number];

/** Reads a route of one instance. */
export async function read<T>(
  route: string,
  path: (string | number)[],
  query: Record<string, QueryValue>,
  signal?: AbortSignal,
): Promise<T> {
  const options = signal === undefined ? { path, query } : { path, query, signal };
  return (await get(route as Route as "version", options as object)) as unknown as T;
}

/** The address of a route of one instance, for the lines of a terminal. */
export function address(route: string, path: (string | number)[], query: Record<string, QueryValue> = {}): string {
  return urlOf(route, path, query);
}
