// What the bar of an operation consists of: a segment for each queue, attempt, retry pause and wait.
import { durationText, exactText } from "../../../design/time.tsx";
import type { Operation, TimelineData } from "../data.ts";
import { errorText } from "../parts.tsx";

export type SegmentKind = "queue" | "run" | "pause" | "wait" | "mark" | "until";

export interface Segment {
  kind: SegmentKind;
  fromMs: number;
  toMs: number;
  isFailed: boolean;
  isOpen: boolean;
}

const NEVER_MS = 253_402_300_799_999;

function segment(kind: SegmentKind, fromMs: number, toMs: number, isFailed = false, isOpen = false): Segment {
  return { kind, fromMs, toMs: Math.max(fromMs, toMs), isFailed, isOpen };
}

export function isInstant(operation: Operation): boolean {
  return operation.kind === "start" || operation.kind === "send";
}

/** When the bar ends: at its end, or now. */
export function endOf(operation: Operation, nowMs: number): number {
  if (isInstant(operation)) return operation.ended_ms ?? operation.scheduled_ms;
  return operation.outcome === "open" ? Math.max(nowMs, operation.scheduled_ms) : (operation.ended_ms ?? operation.scheduled_ms);
}

export function segmentsOf(operation: Operation, nowMs: number): Segment[] {
  if (isInstant(operation)) return [segment("mark", operation.scheduled_ms, operation.scheduled_ms)];
  const end = endOf(operation, nowMs);
  const isOpen = operation.outcome === "open";
  if (operation.kind !== "activity") {
    const parts = [segment("wait", operation.scheduled_ms, end, operation.outcome === "failed", isOpen)];
    if (isOpen && operation.due_ms !== undefined && operation.due_ms > end)
      parts.push(segment("until", end, Math.min(operation.due_ms, NEVER_MS)));
    return parts;
  }
  const parts: Segment[] = [];
  let at = operation.scheduled_ms;
  operation.attempts.forEach((attempt, index) => {
    const isLast = index === operation.attempts.length - 1;
    const isFailed = attempt.error !== undefined || (isLast && operation.outcome === "failed");
    if (attempt.queued_ms > at && index > 0) parts.push(segment("pause", at, attempt.queued_ms));
    parts.push(segment("queue", attempt.queued_ms, attempt.began_ms));
    parts.push(segment("run", attempt.began_ms, attempt.ended_ms, isFailed));
    at = attempt.ended_ms;
  });
  if (!isOpen) {
    if (operation.attempts.length === 0) parts.push(segment("run", at, end, operation.outcome === "failed"));
    return parts;
  }
  const isPausing =
    operation.state === "waiting" ||
    (operation.state === undefined && operation.attempts.length > 0 && (operation.due_ms ?? 0) > nowMs);
  if (isPausing) {
    parts.push(segment("pause", at, end, false, true));
    if ((operation.due_ms ?? 0) > end) parts.push(segment("until", end, operation.due_ms ?? end));
  } else if (operation.state === "queued") {
    parts.push(segment("queue", at, end, false, true));
  } else {
    const began = operation.since_ms ?? at;
    if (began > at) parts.push(segment(operation.attempts.length > 0 ? "pause" : "queue", at, began));
    parts.push(segment("run", began, end, false, true));
  }
  return parts;
}

/** How many attempts were begun. While an operation waits for the next one, `attempt` is the number that it will have. */
export function attemptsOf(operation: Operation): number {
  const begun = (operation.attempt ?? 0) - (operation.outcome === "open" && operation.state === "waiting" ? 1 : 0);
  return Math.max(operation.attempts.length, begun);
}

export interface Sums {
  queue: number;
  run: number;
  pause: number;
  wait: number;
}

export function sumsOf(operation: Operation, nowMs: number): Sums {
  const sums: Sums = { queue: 0, run: 0, pause: 0, wait: 0 };
  for (const part of segmentsOf(operation, nowMs)) {
    if (part.kind !== "mark" && part.kind !== "until") sums[part.kind] += part.toMs - part.fromMs;
  }
  return sums;
}

export const KIND_WORDS: Record<Operation["kind"], string> = {
  activity: "activity",
  timer: "timer",
  event: "wait for event",
  child: "child",
  update: "update",
  start: "detached start",
  send: "sent event",
};

export const KIND_ICONS = {
  activity: "activities",
  timer: "clock",
  event: "bolt",
  child: "branch",
  update: "edit",
  start: "send",
  send: "send",
} as const;

/** The last error that is known, as people read it. */
export function lastError(operation: Operation): string | null {
  if (operation.error !== undefined) return errorText(operation.error);
  const failed = operation.attempts.findLast((attempt) => attempt.error !== undefined);
  return failed?.error === undefined || operation.outcome === "completed" ? null : errorText(failed.error);
}

/** Everything that the bar shows, in words. */
export function nameOfBar(operation: Operation, nowMs: number): string {
  const sums = sumsOf(operation, nowMs);
  const words = [`${KIND_WORDS[operation.kind]} ${operation.name}`.trim(), `event ${operation.event}`];
  if (operation.unit !== undefined) words.push(`unit ${operation.unit}`);
  words.push(operation.outcome === "open" ? "open" : operation.outcome);
  words.push(`scheduled ${exactText(operation.scheduled_ms).split("\n")[0] ?? ""}`);
  words.push(
    `${operation.outcome === "open" ? "so far" : "took"} ${durationText(endOf(operation, nowMs) - operation.scheduled_ms)}`,
  );
  if (operation.kind === "activity") {
    words.push(`queued ${durationText(sums.queue)}`, `ran ${durationText(sums.run)}`);
    if (sums.pause > 0) words.push(`paused before retries ${durationText(sums.pause)}`);
    const count = attemptsOf(operation);
    if (count > 1) words.push(`${count} attempts`);
  }
  if (operation.due_ms !== undefined && operation.outcome === "open") {
    words.push(operation.due_ms >= NEVER_MS ? "never fires" : `until ${exactText(operation.due_ms).split("\n")[0] ?? ""}`);
  }
  const error = lastError(operation);
  if (error !== null) words.push(`error: ${error.slice(0, 200)}`);
  return words.join(", ");
}

/** Times at which something happens, for folding what lies between. */
export function pointsOf(operations: readonly Operation[]): number[] {
  const points: number[] = [];
  for (const operation of operations) {
    points.push(operation.scheduled_ms);
    if (operation.ended_ms !== undefined) points.push(operation.ended_ms);
    if (operation.since_ms !== undefined) points.push(operation.since_ms);
    for (const attempt of operation.attempts) points.push(attempt.queued_ms, attempt.began_ms, attempt.ended_ms);
  }
  return points;
}

/** The timeline as it was after a turn: later operations are not there, later ends have not come. */
export function asOf(data: TimelineData, atMs: number, turn: number, open: ReadonlySet<number>): TimelineData {
  const operations = data.operations.flatMap((operation) => {
    if (operation.turn > turn) return [];
    const isOpen = open.has(operation.event) || (operation.ended_ms ?? Infinity) > atMs;
    if (!isOpen || isInstant(operation)) return [operation];
    const { ended_ms: _, ended_by: __, error: ___, state: ____, since_ms: _____, attempt: ______, ...rest } = operation;
    const attempts = operation.attempts.filter((attempt) => attempt.ended_ms <= atMs);
    return [{ ...rest, outcome: "open" as const, attempts }];
  });
  // What was added up and which path was critical is known of the whole only.
  return {
    ...data,
    critical_path: [],
    totals: [],
    at_ms: atMs,
    operations,
    turns: data.turns.filter((mark) => mark.number <= turn),
    last_turn: turn,
  };
}
