// What an instance does now, in a line: from what the server says that it waits for, with times that move.
import type { ComponentChildren, JSX } from "preact";

import type { ListedInstance, Wait } from "../../api/types.ts";
import { Text } from "../../design/Id.tsx";
import { Time, now, wholeText } from "../../design/time.tsx";

export function DoesNow({ row }: { row: ListedInstance }): JSX.Element | null {
  if (row.ended_ms !== null) return <Outcome row={row} />;
  const all = row.waits_for ?? [];
  // That no runtime runs is told once, on top of the page: a row says what its own instance waits for.
  const own = all.filter((wait) => wait.kind !== "no_runtime");
  const waits = own.length > 0 ? own : all;
  const first = waits.find((wait) => wait.remedy !== undefined) ?? waits[0];
  if (first === undefined) return row.status === "pending" ? <span class="muted">not started yet</span> : null;
  const children = waits.filter((wait) => wait.kind === "child").length;
  const others = waits.length - 1 + (row.more_waits ?? 0);
  if (first.kind === "child" && children > 1 && children === waits.length) {
    return <span title={first.text}>{(children + (row.more_waits ?? 0)).toLocaleString("en")} children</span>;
  }
  return (
    <span class={first.remedy === undefined ? "" : "stuck"} title={first.text}>
      <WaitLine wait={first} />
      {others > 0 && <span class="muted"> and {others.toLocaleString("en")} more</span>}
    </span>
  );
}

/** What the wait is about, as the filter `waits_for` names it. */
export function waitFilter(row: ListedInstance): string | null {
  const wait = row.waits_for?.[0];
  switch (wait?.kind) {
    case "activity":
    case "event":
    case "child":
      return wait.name === undefined ? null : `${wait.kind}:${wait.name}`;
    case "timer":
      return "timer";
    default:
      return null;
  }
}

function Name({ of }: { of: string | undefined }): JSX.Element {
  return (
    <b class="mono">
      <Text text={of ?? ""} />
    </b>
  );
}

function ago(ms: number | null | undefined): string {
  return wholeText(now.value - (ms ?? now.value));
}

function inTime(ms: number | undefined): string {
  const left = (ms ?? 0) - now.value;
  return left <= 0 ? "now" : `in ${wholeText(left + 999)}`;
}

function WaitLine({ wait }: { wait: Wait }): JSX.Element {
  switch (wait.kind) {
    case "activity":
      return (
        <>
          activity <Name of={wait.name} />
          <ActivityState wait={wait} />
        </>
      );
    case "event":
      return (
        <>
          event <Name of={wait.name} />, for {ago(wait.since_ms)}
          {wait.timer_ms !== undefined && `, gives up ${inTime(wait.timer_ms)}`}
        </>
      );
    case "timer":
      return (wait.due_ms ?? 0) > 253_402_300_000_000 ? (
        <>a timer that never fires</>
      ) : (
        <>
          timer until <Time ms={wait.due_ms ?? 0} form="clock" />, {inTime(wait.due_ms)}
        </>
      );
    case "child":
      return (
        <>
          child <Name of={wait.id} />
        </>
      );
    case "blocked":
      return <Text text={wait.reason ?? wait.text} />;
    case "paused":
      return (
        <>
          paused
          {wait.reason !== undefined && wait.reason !== null && (
            <>
              : <Text text={wait.reason} />
            </>
          )}
        </>
      );
    case "missing_code":
      return (
        <>
          no live node has <Name of={wait.name} /> {wait.version}
        </>
      );
    case "start":
      return (
        <>
          delayed start <Time ms={wait.due_ms ?? 0} form="clock" />, {inTime(wait.due_ms)}
        </>
      );
    case "no_runtime":
      return <>waits for a runtime</>;
    case "cancellation":
      return (
        <>
          is being cancelled, ends at the latest {inTime(wait.until_ms)}
          {wait.reason !== undefined && (
            <>
              : <Text text={wait.reason} />
            </>
          )}
        </>
      );
    default:
      return <Text text={wait.text} />;
  }
}

function ActivityState({ wait }: { wait: Wait }): ComponentChildren {
  const limit = wait.max_attempts ?? null;
  const attempt = limit === 1 ? "" : `, attempt ${wait.attempt ?? 1}${limit === null ? "" : ` of ${limit}`}`;
  switch (wait.state) {
    case "retry":
      return (
        <>
          {attempt}, again {inTime(wait.due_ms)}
          {wait.failed !== undefined && (
            <span class="error">
              : <Text text={wait.failed.error} />
            </span>
          )}
        </>
      );
    case "not_registered":
      return (
        <>
          {wait.tag === undefined ? (
            ": no live node has it"
          ) : (
            <>
              : no live node serves tag <Name of={wait.tag} />
            </>
          )}
        </>
      );
    case "running":
    case "with_owner":
      return (
        <>
          {attempt}, running for {ago(wait.since_ms)}
        </>
      );
    case "token":
      return <>{attempt}, waits to be completed from outside</>;
    default:
      return (
        <>
          {attempt}, queued for {ago(wait.since_ms ?? wait.scheduled_ms)}
        </>
      );
  }
}

/** How it ended, in a line. */
function Outcome({ row }: { row: ListedInstance }): JSX.Element | null {
  const outcome = row.outcome;
  if (outcome === undefined) return null;
  if (outcome.kind === "output" && outcome.text === "null") return <span class="muted">no result</span>;
  const kind = outcome.kind === "error" ? "error" : outcome.kind === "output" ? "mono muted-2" : "";
  return (
    <span class={kind} title={outcome.text}>
      <Text text={outcome.text} />
    </span>
  );
}
