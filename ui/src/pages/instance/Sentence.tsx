// One sentence that says where the instance stands and why, with a link to the proof.
import type { ComponentChildren, JSX } from "preact";

import { useLoad } from "../../api/load.ts";
import { textOf } from "../../api/json.ts";
import type { InstanceDetails } from "../../api/types.ts";
import { countText } from "../../design/Controls.tsx";
import { Code } from "../../design/Copy.tsx";
import { Text } from "../../design/Id.tsx";
import { WORDS, standingOf } from "../../design/Status.tsx";
import { Duration, Time, Since } from "../../design/time.tsx";
import { Source } from "../../frame/source.tsx";
import { href } from "../../router/router.ts";
import { read, type EventRecord, type HistoryPage, type WaitRecord, type WaitsData } from "./data.ts";
import { bodyOf, failedSource } from "./history/events.ts";
import type { InstanceModel } from "./model.ts";
import { WaitText } from "./WaitText.tsx";
import { EventLink, ServerText, errorOf, previewOf } from "./parts.tsx";

export function Sentence({ model, details }: { model: InstanceModel; details: InstanceDetails }): JSX.Element {
  const standing = standingOf(details);
  if (model.isPartial.value && details.blocked === null)
    return (
      <p class="one-sentence one-reading" role="status">
        <span class="sr-only">Reading</span>
        <span class="skeleton" />
      </p>
    );
  if (details.damage !== undefined) return <DamagedSentence details={details} damage={details.damage} />;
  switch (standing) {
    case "blocked":
      return <BlockedSentence details={details} />;
    case "paused":
      return <PausedSentence details={details} />;
    case "completed":
      return (
        <p class="one-sentence">
          Completed <Ended details={details} />
          {details.output !== null && (
            <>
              {" "}
              with{" "}
              <EndLink details={details}>
                <q class="mono">
                  <Text text={previewOf(details.output, 120)} />
                </q>
              </EndLink>
            </>
          )}
          .
        </p>
      );
    case "failed":
      return <FailedSentence model={model} details={details} />;
    case "cancelled":
    case "terminated":
      return (
        <p class="one-sentence">
          {standing === "cancelled" ? "Cancelled" : "Terminated"} <Ended details={details} /> at <EndLink details={details} />
          {details.reason !== null && details.reason !== "" && (
            <>
              :{" "}
              <q>
                <Text text={details.reason} />
              </q>
            </>
          )}
          .
        </p>
      );
    case "pending":
    case "running":
      return <WaitingSentence details={details} />;
  }
}

/** What can be said without the history: how it stands by its row, and what cannot be read. */
function DamagedSentence({ details, damage }: { details: InstanceDetails; damage: string }): JSX.Element {
  const code = /^PER-\d{4}/.exec(damage)?.[0];
  return (
    <p class="one-sentence">
      {WORDS[standingOf(details)]}
      {details.ended_ms !== null && (
        <>
          {" "}
          <Ended details={details} />
        </>
      )}
      . Its history is damaged:{" "}
      <q class="red">
        <Text text={damage.replace(/^PER-\d{4} /, "")} />
      </q>
      . What can be read of it is under History. {code !== undefined && <Code code={code} />}
    </p>
  );
}

function Ended({ details }: { details: InstanceDetails }): JSX.Element | null {
  if (details.ended_ms === null) return null;
  return (
    <>
      <Time ms={details.ended_ms} /> after <Duration ms={details.ended_ms - details.created_ms} />
    </>
  );
}

function EndLink({ details, children }: { details: InstanceDetails; children?: ComponentChildren }): JSX.Element {
  const event = details.events ?? 0;
  if (event === 0) return <>{children ?? "its end"}</>;
  return (
    <EventLink id={details.id} event={event} execution={details.execution}>
      {children ?? <>event {event}</>}
    </EventLink>
  );
}

/** What made it fail is looked up in its last turn: the activity or child whose error it returned. */
function FailedSentence({ model, details }: { model: InstanceModel; details: InstanceDetails }): JSX.Element {
  const origin = useLoad((signal) => originOf(model, details, signal), [details.key, details.ended_ms, details.error === null])
    .value.value;
  return (
    <p class="one-sentence">
      Failed <Ended details={details} /> at <EndLink details={details} />
      {details.error !== null && (
        <>
          :{" "}
          <q class="red">
            <Text text={errorOf(details.error)} />
          </q>
        </>
      )}
      {origin != null && (
        <>
          , returned by{" "}
          <code>
            <Text text={origin.name} />
          </code>{" "}
          (<EventLink id={details.id} event={origin.event} execution={details.execution} />)
          {origin.attempts > 1 && <>, attempt {origin.attempts}</>}
        </>
      )}
      .
    </p>
  );
}

async function originOf(
  model: InstanceModel,
  details: InstanceDetails,
  signal: AbortSignal,
): Promise<{ name: string; event: number; attempts: number } | null> {
  if (details.error === null) return null;
  const bound = { ...model.bound, execution: details.execution };
  const page = await read<HistoryPage>("instances/{id}/history", [model.id], { ...bound, order: "newest", limit: 1 }, signal);
  const failures = (page.turns[0]?.events ?? []).filter((event) => failedSource(event) !== null).reverse();
  const wanted = textOf(details.error);
  const found = failures.find((event) => textOf(bodyOf(event)["error"]).includes(wanted.replace(/^"|"$/g, ""))) ?? null;
  const source = found === null ? null : failedSource(found);
  if (found === null || source === null) return null;
  const scheduled = await read<EventRecord>(
    "instances/{id}/executions/{n}/events/{e}",
    [model.id, details.execution, source],
    model.bound,
    signal,
  );
  const attempts = bodyOf(found)["attempts"];
  return { name: String(bodyOf(scheduled)["name"] ?? ""), event: source, attempts: typeof attempts === "number" ? attempts : 1 };
}

interface Divergence {
  event?: number;
  execution?: number;
  difference?: string;
  location?: string;
  recorded?: { line?: string };
  code?: { line?: string };
}

function BlockedSentence({ details }: { details: InstanceDetails }): JSX.Element | null {
  const blocked = details.blocked;
  if (blocked === null) return null;
  const divergence = blocked.divergence as Divergence | undefined;
  const tried = (
    <span class="muted">
      {" "}
      Blocked <Since ms={blocked.since_ms} />, tried {blocked.attempts === 1 ? "once" : `${blocked.attempts} times`}.{" "}
      <Code code={blocked.code} />
    </span>
  );
  if (divergence?.recorded?.line !== undefined) {
    return (
      <p class="one-sentence">
        Blocked:{" "}
        {divergence.event !== undefined && (
          <>
            at <EventLink id={details.id} event={divergence.event} execution={divergence.execution} />{" "}
          </>
        )}
        the history has{" "}
        <code>
          <Text text={divergence.recorded.line} />
        </code>
        {divergence.code?.line !== undefined ? (
          <>
            , the code does{" "}
            <code>
              <Text text={divergence.code.line} />
            </code>
          </>
        ) : (
          <>, the code does not do that</>
        )}
        {divergence.location !== undefined && (
          <>
            {" "}
            at <Source at={divergence.location} />
          </>
        )}
        .{tried}
      </p>
    );
  }
  const panic = /^PER-\d+ panic in unit (\S+) at (\S+:\d+): ([^]*)$/.exec(blocked.reason);
  if (panic !== null) {
    return (
      <p class="one-sentence">
        Blocked: the code panicked at <Source at={panic[2] ?? ""} />:{" "}
        <q class="amber">
          <Text text={panic[3] ?? ""} />
        </q>
        .{tried}
      </p>
    );
  }
  return (
    <p class="one-sentence">
      Blocked: <ServerText text={blocked.reason.replace(/^PER-\d+ /, "").replace(/\.$/, "")} id={details.id} />.{tried}
    </p>
  );
}

function PausedSentence({ details }: { details: InstanceDetails }): JSX.Element {
  const wait = (details.waits_for as WaitRecord[]).find((each) => each.kind === "paused");
  return (
    <p class="one-sentence">
      Paused <Time ms={wait?.since_ms ?? details.blocked?.since_ms ?? details.created_ms} />
      {wait?.by != null && wait.by !== "" && (
        <>
          {" "}
          by <Text text={wait.by} />
        </>
      )}
      {wait?.reason !== undefined && wait.reason !== "" && (
        <>
          :{" "}
          <q>
            <Text text={wait.reason} />
          </q>
        </>
      )}
      . It takes no turn until it is resumed; nothing is lost.
    </p>
  );
}

/** Where it stood after a turn of the past. */
export function PastSentence({ model, execution, turn }: { model: InstanceModel; execution: number; turn: number }): JSX.Element {
  const then = useLoad(
    (signal) => read<WaitsData>("instances/{id}/waits", [model.id], { ...model.bound, execution, turn }, signal),
    [execution, turn],
  ).value.value;
  const first = then?.waits[0];
  const others = (then?.waits.length ?? 1) - 1 + (then?.more ?? 0);
  return (
    <p class="one-sentence one-then">
      As it was after turn {turn}
      {then !== undefined && (
        <>
          {" "}
          at <Time ms={then.at_ms} form="clock" />
        </>
      )}
      :{" "}
      {then === undefined ? (
        "…"
      ) : then.ending !== undefined ? (
        <ServerText text={then.ending} />
      ) : first === undefined ? (
        <>{then.status}, with nothing open.</>
      ) : (
        <WaitText wait={first} id={model.id} isSentence at={then.at_ms} />
      )}
      {first !== undefined && others > 0 && <> {others === 1 ? "One more wait." : `${countText(others)} more waits.`}</>}
    </p>
  );
}

function WaitingSentence({ details }: { details: InstanceDetails }): JSX.Element {
  const waits = details.waits_for as WaitRecord[];
  // What stops everything is told first, then what has an error, then the first that is open.
  const first = waits.find((wait) => STOPS.has(wait.kind)) ?? waits.find((wait) => wait.failed !== undefined) ?? waits[0];
  if (first === undefined) {
    return (
      <p class="one-sentence">
        {details.status === "pending" ? "Has not taken its first turn." : "Takes a turn, or waits for the code to do so."}
      </p>
    );
  }
  const others = waits.length - 1 + details.more_waits;
  return (
    <p class="one-sentence">
      <WaitText wait={first} id={details.id} isSentence />
      {others > 0 && (
        <>
          {" "}
          <a class="link nowrap" href={href(["instances", details.id], { tab: "waits" })}>
            {others === 1 ? "One more wait" : `${countText(others)} more waits`}
          </a>
        </>
      )}
    </p>
  );
}

const STOPS = new Set([
  "no_runtime",
  "no_owner",
  "missing_code",
  "orchestration_not_registered",
  "full",
  "unread",
  "cancellation",
]);
