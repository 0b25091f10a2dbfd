// What an event says in one line, and which operation it belongs to.
import { textOf } from "../../../api/json.ts";
import type { EventRecord, OperationKind } from "../data.ts";
import { leftOut, previewOf } from "../parts.tsx";

export type EventBody = Record<string, unknown>;

/** The kind as recorded: the one key of the event. */
export function kindOf(event: EventRecord): string {
  return Object.keys(event.event)[0] ?? "";
}

export function bodyOf(event: EventRecord): EventBody {
  const body = (event.event as EventBody)[kindOf(event)];
  return typeof body === "object" && body !== null ? (body as EventBody) : {};
}

/** What an event is about, by which it is coloured. */
export type Tone = "begin" | "good" | "bad" | "stop" | "plain" | "end";

const TONES: Record<string, Tone> = {
  OrchestrationStarted: "end",
  ActivityScheduled: "begin",
  TimerCreated: "begin",
  ExternalSubscribed: "begin",
  SubOrchestrationScheduled: "begin",
  UpdateRequested: "begin",
  OrchestrationChained: "begin",
  ExternalEventSent: "begin",
  ActivityCompleted: "good",
  TimerFired: "good",
  ExternalEvent: "good",
  SubOrchestrationCompleted: "good",
  DeliveryReported: "good",
  OrchestrationCompleted: "good",
  ActivityFailed: "bad",
  SubOrchestrationFailed: "bad",
  OrchestrationFailed: "bad",
  ExternalEventSkipped: "bad",
  MessageSkipped: "bad",
  OrchestrationCancelRequested: "stop",
  OrchestrationCancelled: "stop",
  OrchestrationTerminated: "stop",
  ActivityCancelRequested: "stop",
  TimerCancelled: "stop",
  ExternalUnsubscribed: "stop",
  SubOrchestrationCancelRequested: "stop",
  ActivityStopRequested: "stop",
  SubOrchestrationStopRequested: "stop",
  CancelSent: "stop",
  OrchestrationContinuedAsNew: "end",
};

/** All kinds, for the filter. */
export const KINDS: readonly string[] = [
  ...Object.keys(TONES),
  "SystemCall",
  "PatchMarked",
  "AttributesUpserted",
  "StatusSet",
  "UpdateCompleted",
  "SubOrchestrationStarted",
  "InstanceResumed",
].sort();

export function toneOf(event: EventRecord): Tone {
  const kind = kindOf(event);
  if (kind === "UpdateCompleted") return isRefusal(event) ? "bad" : "good";
  return TONES[kind] ?? "plain";
}

function isRefusal(event: EventRecord): boolean {
  const result = bodyOf(event)["result"];
  return typeof result === "object" && result !== null && "Err" in result;
}

/** The event that an event completes or cancels. */
export function sourceOf(event: EventRecord): number | null {
  const source = bodyOf(event)["source_event_id"];
  return typeof source === "number" ? source : null;
}

export function failedSource(event: EventRecord): number | null {
  return toneOf(event) === "bad" ? sourceOf(event) : null;
}

const OPENS: Record<string, OperationKind> = {
  ActivityScheduled: "activity",
  TimerCreated: "timer",
  ExternalSubscribed: "event",
  SubOrchestrationScheduled: "child",
  UpdateRequested: "update",
  OrchestrationChained: "start",
  ExternalEventSent: "send",
};

/** The operation that an event begins. */
export function opens(event: EventRecord): OperationKind | null {
  return OPENS[kindOf(event)] ?? null;
}

/** The name that an event carries: of an activity, event, orchestration, update or call. */
export function nameOf(event: EventRecord): string {
  const body = bodyOf(event);
  for (const member of ["name", "op", "id"]) {
    const value = body[member];
    if (typeof value === "string") return value;
  }
  return "";
}

/** The member that holds the event's payload, if it has one. */
export function payloadMember(event: EventRecord): string | null {
  const body = bodyOf(event);
  for (const member of ["input", "result", "payload", "output", "error", "value", "status", "attributes"]) {
    if (member in body) return member;
  }
  return null;
}

export function payloadOf(event: EventRecord): unknown {
  const member = payloadMember(event);
  if (member === null) return undefined;
  const value = bodyOf(event)[member];
  // Errors of activities and children, and results of updates, say in one more level what they are.
  if (typeof value === "object" && value !== null && leftOut(value) === null) {
    for (const level of ["Application", "Ok", "Err"]) if (level in value) return (value as EventBody)[level];
  }
  return value;
}

/** What else an event says, in a line. */
export function summaryOf(event: EventRecord): string {
  const body = bodyOf(event);
  const payload = payloadOf(event);
  if (payload !== undefined) return previewOf(payload, 200);
  if (typeof body["due_ms"] === "number")
    return body["due_ms"] >= 253_402_300_799_999 ? "never" : `until ${new Date(body["due_ms"]).toLocaleString()}`;
  if (typeof body["reason"] === "string") return body["reason"];
  const source = sourceOf(event);
  const rest = Object.keys(body).filter((member) => !["name", "source_event_id", "trail"].includes(member));
  if (rest.length === 0) return source === null ? "" : `of event ${source}`;
  return textOf(body);
}

/** How many attempts an activity took, for its completion. */
export function attemptsOf(event: EventRecord): number {
  const attempts = bodyOf(event)["attempts"];
  return typeof attempts === "number" ? attempts : 1;
}
