// The side of the timeline: everything about the bar that is selected, or the sums by name.
import type { ComponentChildren, JSX } from "preact";

import { useLoad } from "../../../api/load.ts";
import type { InstanceDetails } from "../../../api/types.ts";
import { Button, countText } from "../../../design/Controls.tsx";
import { Id, Text } from "../../../design/Id.tsx";
import { Payload } from "../../../design/Json.tsx";
import { Part } from "../../../design/Problem.tsx";
import { Icon } from "../../../design/icons.tsx";
import { Duration, Time, durationText } from "../../../design/time.tsx";
import { whyReadOnly } from "../../../frame/state.ts";
import { href } from "../../../router/router.ts";
import { raise, retryActivity } from "../acting.tsx";
import { read, type EventRecord, type Operation, type Total } from "../data.ts";
import { bodyOf, payloadMember, payloadOf } from "../history/events.ts";
import type { InstanceModel } from "../model.ts";
import { EventLink, errorText } from "../parts.tsx";
import { attemptsOf, KIND_WORDS, endOf, isInstant, lastError, sumsOf } from "./bars.ts";
import type { Source } from "./sources.ts";

interface Props {
  model: InstanceModel;
  details: InstanceDetails;
  operation: Operation;
  source: Source;
  nowMs: number;
  onClose: () => void;
}

function Fact({ name, children }: { name: string; children: ComponentChildren }): JSX.Element {
  return (
    <>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </>
  );
}

export function OperationSide(props: Props): JSX.Element {
  const { operation, source, nowMs } = props;
  const execution = source.execution ?? source.loaded.value.value?.execution ?? 1;
  const sums = sumsOf(operation, nowMs);
  const error = lastError(operation);
  return (
    <aside class="tl-side" aria-label="Selected operation">
      <header>
        <div class="stack tight">
          <span class="label">{KIND_WORDS[operation.kind]}</span>
          <h2 class="one-wrap">
            <Text text={operation.name === "" ? KIND_WORDS[operation.kind] : operation.name} />
          </h2>
        </div>
        <span class={`chip ${TONES[operation.outcome]}`}>{operation.outcome}</span>
        <button type="button" class="button quiet icon small" aria-label="Close" onClick={props.onClose}>
          <Icon name="close" size={14} />
        </button>
      </header>
      {error !== null && (
        <p class="tl-error">
          <Text text={error} keepLines />
        </p>
      )}
      <Doing {...props} />
      <dl class="one-pairs">
        <Fact name="Event">
          <EventLink id={source.id} event={operation.event} execution={execution} />, turn {operation.turn}
        </Fact>
        {source.id !== props.model.id && (
          <Fact name="Of">
            <Id text={source.id} href={href(["instances", source.id])} />
          </Fact>
        )}
        {operation.instance !== undefined && (
          <Fact name={operation.kind === "child" ? "Child" : "Instance"}>
            <Id text={operation.instance} href={href(["instances", operation.instance])} />
          </Fact>
        )}
        {operation.unit !== undefined && (
          <Fact name="Unit">
            <code>
              <Text text={operation.unit} />
            </code>
          </Fact>
        )}
        <Fact name="Scheduled">
          <Time ms={operation.scheduled_ms} />
        </Fact>
        {operation.due_ms !== undefined && (
          <Fact name={operation.kind === "activity" ? "Next attempt" : "Due"}>
            <Time ms={operation.due_ms} />
          </Fact>
        )}
        {operation.ended_ms !== undefined && !isInstant(operation) && (
          <Fact name="Ended">
            <Time ms={operation.ended_ms} />
            {operation.ended_by !== undefined && (
              <>
                {" "}
                (<EventLink id={source.id} event={operation.ended_by} execution={execution} />)
              </>
            )}
          </Fact>
        )}
        {!isInstant(operation) && (
          <Fact name={operation.outcome === "open" ? "So far" : "Took"}>
            <Duration ms={endOf(operation, nowMs) - operation.scheduled_ms} />
          </Fact>
        )}
        {operation.kind === "activity" && (
          <Fact name="Of which">
            <SumWords sums={sums} />
          </Fact>
        )}
      </dl>
      {operation.attempts.length > 0 && <Attempts operation={operation} />}
      <Payloads source={source} operation={operation} execution={execution} />
    </aside>
  );
}

const TONES = { open: "blue", completed: "green", failed: "red", cancelled: "plain" } as const;

function SumWords({ sums }: { sums: ReturnType<typeof sumsOf> }): JSX.Element {
  const words = [
    ["queue", sums.queue],
    ["run", sums.run],
    ["retry pause", sums.pause],
  ] as const;
  return (
    <>
      {words
        .filter(([, ms]) => ms > 0)
        .map(([name, ms]) => `${name} ${durationText(ms)}`)
        .join(", ") || "no time at all"}
    </>
  );
}

function Doing({ model, details, operation, source }: Props): JSX.Element | null {
  if (operation.outcome !== "open" || source.id !== model.id || model.isOver) return null;
  const about = { model, details };
  if (operation.kind === "event") {
    return (
      <div class="row">
        <Button kind="small primary" whyNot={whyReadOnly.value} onClick={() => raise(about, operation.name)}>
          Raise…
        </Button>
      </div>
    );
  }
  if (operation.kind === "activity" && operation.state === "waiting") {
    return (
      <div class="row">
        <Button
          kind="small primary"
          whyNot={whyReadOnly.value}
          onClick={() => retryActivity(about, operation.event, operation.name)}
        >
          Retry now…
        </Button>
      </div>
    );
  }
  return null;
}

function Attempts({ operation }: { operation: Operation }): JSX.Element {
  const total = attemptsOf(operation);
  return (
    <section>
      <h3>
        Attempts <span class="count">{total}</span>
      </h3>
      {total > operation.attempts.length && <p class="hint">The first and the last ones are recorded.</p>}
      <ol class="tl-attempts">
        {operation.attempts.slice(0, 40).map((attempt, index) => {
          const isLast = index === operation.attempts.length - 1;
          const isFailed = attempt.error !== undefined || (isLast && operation.outcome === "failed");
          return (
            <li key={index}>
              <span class={`tl-dot ${isFailed ? "bad" : "good"}`} aria-hidden="true" />
              <div class="stack tight">
                <span class="row wrap">
                  <strong>{isFailed ? "failed" : "completed"}</strong> <Time ms={attempt.began_ms} form="clock" />
                  <span class="muted">
                    queued <Duration ms={attempt.began_ms - attempt.queued_ms} />, ran{" "}
                    <Duration ms={attempt.ended_ms - attempt.began_ms} />
                    {attempt.node !== undefined && (
                      <>
                        {" "}
                        on <Text text={attempt.node} />
                      </>
                    )}
                  </span>
                </span>
                {attempt.error !== undefined && (
                  <span class="red one-wrap">
                    <Text text={errorText(attempt.error)} keepLines />
                  </span>
                )}
              </div>
            </li>
          );
        })}
      </ol>
    </section>
  );
}

/** Input, options and result, out of the events that began and ended the operation. */
function Payloads({ source, operation, execution }: { source: Source; operation: Operation; execution: number }): JSX.Element {
  const one = (event: number, signal: AbortSignal) =>
    read<EventRecord>("instances/{id}/executions/{n}/events/{e}", [source.id, execution, event], {}, signal);
  const loaded = useLoad(
    async (signal) => {
      const begun = await one(operation.event, signal);
      const ended = operation.ended_by === undefined ? null : await one(operation.ended_by, signal);
      return { begun, ended };
    },
    [source.id, execution, operation.event, operation.ended_by],
  );
  return (
    <Part of={loaded}>
      {({ begun, ended }) => {
        const options = bodyOf(begun)["options"];
        return (
          <>
            {payloadMember(begun) !== null && (
              <section>
                <h3>Input</h3>
                <Payload value={payloadOf(begun)} name={`event-${begun.id}`} />
              </section>
            )}
            {ended !== null && payloadMember(ended) !== null && (
              <section>
                <h3>{operation.outcome === "failed" ? "Error" : "Result"}</h3>
                <Payload value={payloadOf(ended)} name={`event-${ended.id}`} />
              </section>
            )}
            {options !== undefined && (
              <section>
                <h3>Options</h3>
                <Payload value={options} name="options" />
              </section>
            )}
          </>
        );
      }}
    </Part>
  );
}

/** Times by name: what the whole consists of. */
export function SumsSide({
  totals,
  hasMore,
  onClose,
}: {
  totals: readonly Total[];
  hasMore: boolean;
  onClose: () => void;
}): JSX.Element {
  const all = (total: Total) => total.queue_ms + total.run_ms + total.pause_ms + total.wait_ms;
  const most = Math.max(1, ...totals.map(all));
  return (
    <aside class="tl-side" aria-label="Sums by name">
      <header>
        <h2>Sums by name</h2>
        <button type="button" class="button quiet icon small push" aria-label="Close" onClick={onClose}>
          <Icon name="close" size={14} />
        </button>
      </header>
      <div class="table-scroll">
        <table class="table tl-sums">
          <thead>
            <tr>
              <th>Name</th>
              <th class="num">Queue</th>
              <th class="num">Run</th>
              <th class="num">Pause</th>
              <th class="num">Wait</th>
            </tr>
          </thead>
          <tbody>
            {totals.slice(0, 100).map((total) => (
              <tr key={`${total.kind} ${total.name}`}>
                <th scope="row">
                  <span class="row">
                    <span class="clip">
                      <Text text={total.name === "" ? KIND_WORDS[total.kind] : total.name} />
                    </span>
                    <span class="count">
                      {countText(total.count)}
                      {total.failed > 0 && <span class="red"> {total.failed} failed</span>}
                    </span>
                  </span>
                  <span class="tl-sum-bar" aria-hidden="true" style={{ width: `${Math.max(2, (all(total) / most) * 100)}%` }}>
                    {(["queue", "run", "pause", "wait"] as const).map((part) => (
                      <span key={part} class={part} style={{ flexGrow: total[`${part}_ms`] }} />
                    ))}
                  </span>
                </th>
                {[total.queue_ms, total.run_ms, total.pause_ms, total.wait_ms].map((ms, index) => (
                  <td key={index} class={`num ${ms === 0 ? "muted" : ""}`}>
                    {ms === 0 ? "–" : durationText(ms)}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {hasMore && <p class="hint">There are more names than these.</p>}
      <p class="hint">Operations beside one another are added up, so a sum can be longer than the whole took.</p>
    </aside>
  );
}
