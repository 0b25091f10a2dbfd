// What is open: by unit, with since, until, attempts, errors, heartbeats, and what can be done about each.
import type { ComponentChildren, JSX } from "preact";
import { useEffect } from "preact/hooks";

import { useLoad } from "../../../api/load.ts";
import type { InstanceDetails } from "../../../api/types.ts";
import { Button, countText } from "../../../design/Controls.tsx";
import { Code } from "../../../design/Copy.tsx";
import { Id, Text } from "../../../design/Id.tsx";
import { Empty, Part } from "../../../design/Problem.tsx";
import { Status, type Standing } from "../../../design/Status.tsx";
import { Icon, type IconName } from "../../../design/icons.tsx";
import { Time, noteServerTime } from "../../../design/time.tsx";
import { whyReadOnly } from "../../../frame/state.ts";
import { Source } from "../../../frame/source.tsx";
import { href } from "../../../router/router.ts";
import { Sentence } from "../Sentence.tsx";
import { WaitText } from "../WaitText.tsx";
import { raise, resume, retry, retryActivity } from "../acting.tsx";
import { read, type WaitRecord, type WaitsData } from "../data.ts";
import { pastOf, type InstanceModel } from "../model.ts";
import { Fold, ServerText, errorText } from "../parts.tsx";
import "./waits.css";

interface About {
  model: InstanceModel;
  details: InstanceDetails;
}

/** Heartbeats and running attempts change without a turn. */
const POLLED_MS = 2_000;

export default function WaitsTab({ model, details }: About): JSX.Element {
  const past = pastOf(details.execution);
  const query = past === null ? {} : { execution: past.execution, turn: past.turn };
  const loaded = useLoad(
    async (signal) => {
      const waits = await read<WaitsData>("instances/{id}/waits", [model.id], { ...model.bound, ...query }, signal);
      if (past === null) noteServerTime(waits.at_ms);
      return waits;
    },
    [past?.execution, past?.turn],
  );
  useEffect(() => {
    if (past !== null) return;
    const leave = model.listen({ turn: () => void loaded.reload(), changed: () => void loaded.reload() });
    const timer = setInterval(() => {
      const isBusy = loaded.value.peek()?.waits.some((wait) => wait.kind === "activity" && wait.state !== "retry") === true;
      if (isBusy && document.visibilityState === "visible") void loaded.reload();
    }, POLLED_MS);
    return () => {
      leave();
      clearInterval(timer);
    };
  }, [loaded]);
  return (
    <div class="wt">
      <Part of={loaded}>{(waits) => <Waits model={model} details={details} waits={waits} isPast={past !== null} />}</Part>
    </div>
  );
}

function Waits({ model, details, waits, isPast }: About & { waits: WaitsData; isPast: boolean }): JSX.Element {
  const groups = new Map<string, WaitRecord[]>();
  for (const wait of waits.waits) {
    const unit = wait.unit ?? "";
    groups.set(unit, [...(groups.get(unit) ?? []), wait]);
  }
  const untaken = Object.entries(waits.untaken_events ?? {});
  return (
    <>
      {waits.waits.length === 0 && (
        <Empty title={isPast ? "Nothing was open" : "Nothing is open"}>
          {waits.ending !== undefined ? (
            <p>
              It ended: <ServerText text={waits.ending} />.
            </p>
          ) : (
            !isPast && <Sentence model={model} details={details} />
          )}
        </Empty>
      )}
      {[...groups]
        .sort(([a], [b]) => a.localeCompare(b))
        .map(([unit, list]) => (
          <section key={unit} class="wt-group">
            {(unit !== "" || groups.size > 1) && (
              <h2>
                {unit === "" ? (
                  "Main"
                ) : (
                  <>
                    Unit{" "}
                    <code>
                      <Text text={unit} />
                    </code>
                  </>
                )}{" "}
                <span class="count">{list.length}</span>
              </h2>
            )}
            <ul class="wt-list">
              {list.slice(0, 100).map((wait, index) => (
                <WaitCard
                  key={`${wait.kind} ${wait.event ?? index}`}
                  about={{ model, details }}
                  wait={wait}
                  at={isPast ? waits.at_ms : undefined}
                />
              ))}
            </ul>
          </section>
        ))}
      {waits.more > 0 && (
        <p class="hint wt-more">
          and {countText(waits.more)} more operations are open; the{" "}
          <a class="link" href={href(["instances", model.id])}>
            timeline
          </a>{" "}
          shows them.
        </p>
      )}
      {untaken.length > 0 && (
        <section class="wt-group">
          <h2>Events that no wait has taken</h2>
          <ul class="row wrap">
            {untaken.map(([name, count]) => (
              <li key={name} class="chip plain">
                <Text text={name} /> <span class="count">{countText(count)}</span>
              </li>
            ))}
          </ul>
        </section>
      )}
    </>
  );
}

const ICONS: Record<string, IconName> = {
  activity: "activities",
  event: "bolt",
  timer: "clock",
  child: "branch",
  update: "edit",
  delivery: "send",
  blocked: "blocked",
  paused: "freeze",
  cancellation: "close",
  start: "clock",
};

/** `at` is the time of a past that is looked at. */
function WaitCard({ about, wait, at }: { about: About; wait: WaitRecord; at: number | undefined }): JSX.Element {
  const { model } = about;
  return (
    <li class="wt-card">
      <span class={`wt-icon ${wait.failed !== undefined ? "bad" : wait.kind === "blocked" ? "amber" : ""}`}>
        <Icon name={ICONS[wait.kind] ?? "warning"} />
      </span>
      <div class="stack">
        <p class="one-wrap">
          <WaitText wait={wait} id={model.id} at={at} />
        </p>
        <Facts wait={wait} />
        {wait.remedy !== undefined && (
          <p class="hint">
            To do: <ServerText text={wait.remedy} id={model.id} />.
          </p>
        )}
        {wait.kind === "blocked" && about.details.blocked !== null && <Report blocked={about.details.blocked} />}
        {wait.waits !== undefined && wait.waits.length > 0 && <Below waits={wait.waits} depth={0} />}
      </div>
      {at === undefined && (
        <div class="wt-do">
          <Doing about={about} wait={wait} />
        </div>
      )}
    </li>
  );
}

function Facts({ wait }: { wait: WaitRecord }): JSX.Element | null {
  const facts: [string, ComponentChildren][] = [];
  const since = wait.since_ms ?? wait.scheduled_ms;
  if (wait.kind === "activity") {
    if (wait.attempt !== undefined) {
      const of = wait.max_attempts === undefined ? "" : ` of ${wait.max_attempts}`;
      // Until the next one begins, `attempt` is the number that it will have.
      facts.push(wait.state === "retry" ? ["attempts made", `${wait.attempt - 1}${of}`] : ["attempt", `${wait.attempt}${of}`]);
    }
    if (wait.scheduled_ms !== undefined) facts.push(["scheduled", <Time ms={wait.scheduled_ms} />]);
    if (wait.state === "retry" && wait.due_ms !== undefined) facts.push(["next attempt", <Time ms={wait.due_ms} />]);
    if (wait.node != null) facts.push(["node", <Text text={wait.node} />]);
    if (wait.tag != null) facts.push(["tag", <Text text={wait.tag} />]);
    if (wait.heard_ms != null) facts.push(["heartbeat", <Time ms={wait.heard_ms} form="relative" />]);
    if (wait.details != null)
      facts.push([
        "progress",
        <span class="mono">
          <Text text={wait.details} />
        </span>,
      ]);
    if (wait.failed !== undefined)
      facts.push([
        "last error",
        <span class="red">
          <Text text={errorText(wait.failed.error)} />
        </span>,
      ]);
  } else if (since !== undefined && !["event", "child", "blocked"].includes(wait.kind))
    facts.push(["since", <Time ms={since} />]);
  if (wait.until_ms !== undefined) facts.push(["until", <Time ms={wait.until_ms} />]);
  if (facts.length === 0) return null;
  return (
    <dl class="wt-facts">
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd class="one-wrap">{value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** What a blocked instance's record and code disagree about, or the panic. */
function Report({ blocked }: { blocked: NonNullable<InstanceDetails["blocked"]> }): JSX.Element {
  const divergence = blocked.divergence as
    | { location?: string; neighbourhood?: { event: number; recorded?: string; code?: string; parts?: boolean }[]; hint?: string }
    | undefined;
  if (divergence?.neighbourhood === undefined) return <Fold text={blocked.report} />;
  return (
    <div class="stack">
      <div class="table-scroll">
        <table class="table wt-divergence">
          <thead>
            <tr>
              <th class="num">Event</th>
              <th>The history has</th>
              <th>The code does</th>
            </tr>
          </thead>
          <tbody>
            {divergence.neighbourhood.map((line) => (
              <tr key={line.event} class={line.parts === true ? "parts" : ""}>
                <td class="num">{line.event}</td>
                <td class="mono">
                  <Text text={line.recorded ?? "–"} />
                </td>
                <td class="mono">
                  <Text text={line.code ?? "–"} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p class="row wrap">
        <Code code={blocked.code} />
        {divergence.location !== undefined && <Source at={divergence.location} />}
      </p>
      {divergence.hint !== undefined && <Fold text={divergence.hint} lines={4} />}
    </div>
  );
}

/** What the children wait for, and theirs. */
function Below({ waits, depth }: { waits: readonly WaitRecord[]; depth: number }): JSX.Element {
  return (
    <ul class="wt-below">
      {waits.slice(0, 20).map((wait, index) => (
        <li key={index}>
          {wait.kind === "child" ? (
            <>
              <Icon name="branch" size={13} /> <Id text={wait.id ?? ""} href={href(["instances", wait.id ?? ""])} />
              {wait.status != null && (
                <>
                  {" "}
                  <Status is={wait.status as Standing} />
                </>
              )}
            </>
          ) : (
            <span class="muted">
              <ServerText text={wait.text} />
            </span>
          )}
          {depth < 4 && wait.waits !== undefined && wait.waits.length > 0 && <Below waits={wait.waits} depth={depth + 1} />}
        </li>
      ))}
      {waits.length > 20 && <li class="muted">and {waits.length - 20} more</li>}
    </ul>
  );
}

function Doing({ about, wait }: { about: About; wait: WaitRecord }): JSX.Element | null {
  const whyNot = whyReadOnly.value;
  switch (wait.kind) {
    case "event":
      return (
        <Button kind="small" whyNot={whyNot} onClick={() => raise(about, wait.name)}>
          Raise…
        </Button>
      );
    case "activity":
      return wait.state === "retry" && wait.event !== undefined ? (
        <Button kind="small" whyNot={whyNot} onClick={() => retryActivity(about, wait.event ?? 0, wait.name ?? "")}>
          Retry now…
        </Button>
      ) : null;
    case "child":
      return (
        <a class="button small" href={href(["instances", wait.id ?? ""])}>
          Open
        </a>
      );
    case "blocked":
      return (
        <Button kind="small" whyNot={whyNot} onClick={() => retry(about)}>
          Retry…
        </Button>
      );
    case "paused":
      return (
        <Button kind="small" whyNot={whyNot} onClick={() => resume(about)}>
          Resume…
        </Button>
      );
    default:
      return null;
  }
}
