// Events grouped into operations: what was scheduled beside what it came to.
import type { EventRecord, OperationKind, TurnRecord } from "../data.ts";
import { kindOf, nameOf, opens, sourceOf, toneOf } from "./events.ts";

export interface Grouped {
  /** The event that began it; `null` if it stands before what was read. */
  begun: EventRecord | null;
  begunMs: number;
  ended: EventRecord | null;
  endedMs: number;
  kind: OperationKind | null;
  name: string;
  outcome: "open" | "completed" | "failed" | "cancelled";
}

const CANCELS = new Set(["ActivityCancelRequested", "TimerCancelled", "ExternalUnsubscribed", "SubOrchestrationCancelRequested"]);
const ASIDE = new Set([
  "SubOrchestrationStarted",
  "ActivityStopRequested",
  "SubOrchestrationStopRequested",
  "ExternalEventSkipped",
]);

/** Operations in the order in which they were scheduled, and events that belong to none. */
export function groupEvents(turns: readonly TurnRecord[]): Grouped[] {
  const groups: Grouped[] = [];
  const begun = new Map<number, Grouped>();
  const awaited = new Map<string, Grouped[]>();
  for (const turn of turns) {
    for (const event of turn.events) {
      const kind = opens(event);
      if (kind !== null) {
        const isDone = kind === "start" || kind === "send";
        const group: Grouped = {
          begun: event,
          begunMs: turn.at_ms,
          ended: null,
          endedMs: turn.at_ms,
          kind,
          name: nameOf(event),
          outcome: isDone ? "completed" : "open",
        };
        groups.push(group);
        begun.set(event.id, group);
        if (kind === "event") awaited.set(group.name, [...(awaited.get(group.name) ?? []), group]);
        continue;
      }
      const source = sourceOf(event);
      const taken =
        source === null && kindOf(event) === "ExternalEvent"
          ? awaited.get(nameOf(event))?.find((wait) => wait.outcome === "open")
          : undefined;
      const group = source === null ? taken : begun.get(source);
      if (group !== undefined && !ASIDE.has(kindOf(event))) {
        [group.ended, group.endedMs] = [event, turn.at_ms];
        group.outcome = CANCELS.has(kindOf(event)) ? "cancelled" : toneOf(event) === "bad" ? "failed" : "completed";
      } else {
        const isBad = toneOf(event) === "bad";
        groups.push({
          begun: source === null ? event : null,
          begunMs: turn.at_ms,
          ended: source === null ? null : event,
          endedMs: turn.at_ms,
          kind: null,
          name: nameOf(event),
          outcome: isBad ? "failed" : "completed",
        });
      }
    }
  }
  return groups;
}
