// One cause: its head with counts that go down live, and what it is when it is open.
import type { JSX } from "preact";
import { useState } from "preact/hooks";

import { API } from "../../api/client.ts";
import type { Cause, FullOperation } from "../../api/ops.ts";
import { Button, countText } from "../../design/Controls.tsx";
import { Code } from "../../design/Copy.tsx";
import { Fold } from "../../design/Fold.tsx";
import { Changing } from "../../design/hold.tsx";
import { Id, Text } from "../../design/Id.tsx";
import { Hint, Rich } from "../../design/Rich.tsx";
import { Time, Since } from "../../design/time.tsx";
import { Icon } from "../../design/icons.tsx";
import { listHref } from "../../frame/filter-text.tsx";
import { OperateDialog, type Plan } from "../../frame/Operate.tsx";
import { SourcePlace } from "../../frame/source.tsx";
import { operations, whyReadOnly } from "../../frame/state.ts";
import { change, href } from "../../router/router.ts";
import { DivergenceTable } from "./DivergenceTable.tsx";
import { KIND_WORDS, causeId, headline, kindOf, panicOf, placeOf } from "./cause.ts";

export function CauseRow({ cause, isOpen }: { cause: Cause; isOpen: boolean }): JSX.Element {
  const kind = kindOf(cause);
  const place = placeOf(cause);
  const isResolved = cause.count === 0;
  return (
    <Fold
      isOpen={isOpen}
      class={`cause ${isResolved ? "resolved" : ""}`}
      onToggle={() => change({ cause: isOpen ? null : causeId(cause) })}
      title={
        <span class="fold-title">
          <span class="cause-line">
            <span class={`cause-kind ${kind}`}>{KIND_WORDS[kind]}</span>
            <span class="cause-what">
              <Id text={cause.name} /> <span class="muted">{cause.version}</span>
            </span>
            <span class="cause-headline">
              <Text text={headline(cause)} />
            </span>
          </span>
          <span class="sub">
            {place !== null && (
              <>
                <span class="mono">
                  <Text text={shortPlace(place)} />
                </span>{" "}
                ·{" "}
              </>
            )}
            blocked <Since ms={cause.first_ms} /> · last tried <Time ms={cause.last_tried_ms ?? cause.last_ms} />
            {cause.next_try_ms !== undefined && (
              <>
                {" "}
                · tries again <Time ms={cause.next_try_ms} />
              </>
            )}
          </span>
        </span>
      }
      body={() => <CauseBody cause={cause} />}
    >
      <Underway cause={cause} />
      <Code code={cause.code} />
      <span class="figure cause-count">
        {isResolved ? (
          <>
            <b class="row">
              <Icon name="check" size={14} /> 0
            </b>
            <span>none left</span>
          </>
        ) : (
          <>
            <b>
              <Changing text={countText(cause.count)} />
            </b>
            <span>{cause.count === 1 ? "instance" : "instances"}</span>
          </>
        )}
      </span>
    </Fold>
  );
}

function shortPlace(place: string): string {
  const parts = place.split("/");
  return parts.length <= 2 ? place : `…/${parts.slice(-2).join("/")}`;
}

/** The operation that acts on this cause now. */
function Underway({ cause }: { cause: Cause }): JSX.Element | null {
  const running = (operations.value as readonly FullOperation[]).find(
    (each) => each.filter === cause.filter && each.state === "running",
  );
  if (running === undefined) return null;
  return (
    <a class="chip blue" href={href(["operations"], { operation: running.id })}>
      {running.action === "retry" ? "Retrying" : running.action === "terminate" ? "Terminating" : running.action}:{" "}
      {running.seen.toLocaleString("en")} so far
    </a>
  );
}

function CauseBody({ cause }: { cause: Cause }): JSX.Element {
  return (
    <>
      {cause.count === 0 && (
        <p class="cause-done">
          <Icon name="check" /> No instance is blocked by this any more. The report below is the last one.
        </p>
      )}
      <What cause={cause} />
      <div class="cause-sides">
        <Remedy cause={cause} />
        <div class="cause-aside">
          {cause.count > 0 && <Actions cause={cause} />}
          <Samples cause={cause} />
        </div>
      </div>
    </>
  );
}

function What({ cause }: { cause: Cause }): JSX.Element {
  const panic = panicOf(cause);
  const place = placeOf(cause);
  const sample = cause.samples[0];
  return (
    <>
      {cause.divergence !== undefined && <DivergenceTable divergence={cause.divergence} sample={sample} />}
      {panic !== null && (
        <figure class="cause-panic">
          <figcaption class="label">Message</figcaption>
          <pre>
            <Text text={panic.message} keepLines />
          </pre>
          {panic.unit !== "" && panic.unit !== "root" && (
            <p class="hint">
              In unit{" "}
              <code>
                <Text text={panic.unit} />
              </code>
            </p>
          )}
        </figure>
      )}
      {kindOf(cause) === "missing" && <Missing cause={cause} />}
      {place !== null && <Source place={place} />}
      {kindOf(cause) === "other" && (
        <pre class="cause-report">
          <Text text={cause.report} keepLines />
        </pre>
      )}
    </>
  );
}

function Remedy({ cause }: { cause: Cause }): JSX.Element {
  return (
    <section class="stack cause-do">
      <h3>What to do</h3>
      {cause.remedy !== "" && (
        <p>
          <Rich text={sentence(cause.remedy)} />
        </p>
      )}
      {cause.divergence !== undefined && cause.divergence.hint !== "" && <Hint text={cause.divergence.hint} />}
    </section>
  );
}

function sentence(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;
}

function Source({ place }: { place: string }): JSX.Element {
  return (
    <div class="cause-source">
      <span class="label">Source</span>
      <SourcePlace place={place} />
    </div>
  );
}

function Missing({ cause }: { cause: Cause }): JSX.Element {
  const nodes = cause.registered_by ?? [];
  return (
    <p>
      The instances need <Id text={cause.name} /> <code>{cause.version === "" ? "of any version" : cause.version}</code>.{" "}
      {nodes.length === 0 ? (
        "No live node has it registered."
      ) : (
        <>
          Registered by{" "}
          {nodes.map((node, index) => (
            <>
              {index > 0 && ", "}
              <Id text={node} />
            </>
          ))}
          , and not by the node that owns the instances.
        </>
      )}
    </p>
  );
}

const PLANS: Record<"retry" | "terminate", Omit<Plan, "filter">> = {
  retry: {
    title: "Retry all that this cause blocks",
    action: "retry",
    verb: "Retry",
    sentence: (count, isOne) =>
      `${isOne ? "1 instance is" : `${count} instances are`} tried again with the code that is registered now. ` +
      "What still differs is blocked again; nothing is lost.",
  },
  terminate: {
    title: "Terminate all that this cause blocks",
    action: "terminate",
    verb: "Terminate",
    isDanger: true,
    isTyped: true,
    hasReason: true,
    sentence: (count, isOne) =>
      `${isOne ? "1 instance ends" : `${count} instances end`} without running any more of ${isOne ? "its" : "their"} code. ` +
      "This cannot be undone.",
  },
};

function Actions({ cause }: { cause: Cause }): JSX.Element {
  const [plan, setPlan] = useState<Plan | null>(null);
  const file = `${cause.name}-${cause.version}-blocked.jsonl`.replace(/[^\w.-]+/g, "_");
  return (
    <div class="row wrap">
      <Button kind="primary" whyNot={whyReadOnly.value} onClick={() => setPlan({ ...PLANS.retry, filter: cause.filter })}>
        Retry all…
      </Button>
      <Button whyNot={whyReadOnly.value} onClick={() => setPlan({ ...PLANS.terminate, filter: cause.filter })}>
        Terminate all…
      </Button>
      <a
        class="button"
        href={`${API}export?${cause.filter}`}
        download={file}
        title="Histories as lines of JSON; the test kit's replay_files reads them"
      >
        <Icon name="download" size={14} /> Export for a test
      </a>
      {plan !== null && <OperateDialog plan={plan} onClose={() => setPlan(null)} />}
    </div>
  );
}

function Samples({ cause }: { cause: Cause }): JSX.Element {
  return (
    <div class="row wrap cause-samples">
      <span class="label">Instances</span>
      {cause.samples.map((id) => (
        <a key={id} class="chip" href={href(["instances", id])}>
          <Id text={id} isClipped />
        </a>
      ))}
      {cause.count > 0 && (
        <a class="link" href={listHref(cause.filter)}>
          All {countText(cause.count)} in the list
        </a>
      )}
    </div>
  );
}
