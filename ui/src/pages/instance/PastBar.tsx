// A slider over turns: the instance as it was after any of them.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";

import { useLoad } from "../../api/load.ts";
import type { InstanceDetails } from "../../api/types.ts";
import { Button, countText } from "../../design/Controls.tsx";
import { Icon } from "../../design/icons.tsx";
import { Time } from "../../design/time.tsx";
import { change } from "../../router/router.ts";
import { read, type ExecutionRow, type WaitsData } from "./data.ts";
import { numberParam, type InstanceModel, type Past } from "./model.ts";

export function PastBar({
  model,
  details,
  past,
}: {
  model: InstanceModel;
  details: InstanceDetails;
  past: Past | null;
}): JSX.Element {
  const execution = numberParam("execution") ?? details.execution;
  if (past === null) {
    const enter = () => change({ turn: execution === details.execution ? Math.max(1, details.turns ?? 1) : 1, execution });
    return (
      <Button
        kind="quiet small one-past-button"
        onClick={enter}
        whyNot={(details.turns ?? 0) === 0 ? "It has not taken a turn." : null}
      >
        <Icon name="past" size={14} /> <span class="words">The past</span>
      </Button>
    );
  }
  return <Slider model={model} details={details} past={past} />;
}

function Slider({ model, details, past }: { model: InstanceModel; details: InstanceDetails; past: Past }): JSX.Element {
  const isCurrent = past.execution === details.execution;
  const rows = useLoad(
    (signal) => read<{ rows: ExecutionRow[] }>("instances/{id}/executions", [model.id], { ...model.bound, limit: 200 }, signal),
    [isCurrent],
  );
  const last = isCurrent
    ? (details.turns ?? past.turn)
    : (rows.value.value?.rows.find((row) => row.execution === past.execution)?.turns ?? past.turn);
  // The thumb moves at once; the page follows when it rests.
  const [at, setAt] = useState(past.turn);
  useEffect(() => setAt(past.turn), [past.turn]);
  useEffect(() => {
    if (at === past.turn) return;
    const timer = setTimeout(() => change({ turn: at }, { replace: true }), 120);
    return () => clearTimeout(timer);
  }, [at]);
  const when = useLoad(
    (signal) =>
      read<WaitsData>("instances/{id}/waits", [model.id], { ...model.bound, execution: past.execution, turn: past.turn }, signal),
    [past.execution, past.turn],
  );
  const time = when.value.value?.at_ms;
  const step = (by: number) => change({ turn: Math.max(1, Math.min(last, past.turn + by)) });
  return (
    <div class="one-past" role="group" aria-label="The past">
      <Icon name="past" size={14} />
      <strong>The past</strong>
      <span class="nowrap">
        after turn {countText(at)} of {countText(last)}
        {!isCurrent && ` of execution ${past.execution}`}
      </span>
      {time !== undefined && at === past.turn && (
        <span class="muted">
          <Time ms={time} form="clock" />
        </span>
      )}
      <Button
        kind="quiet small icon"
        label="One turn earlier"
        whyNot={past.turn <= 1 ? "This is the first turn." : null}
        onClick={() => step(-1)}
      >
        <Icon name="chevronLeft" size={14} />
      </Button>
      <input
        type="range"
        min={1}
        max={Math.max(1, last)}
        value={at}
        aria-label="Turn"
        aria-valuetext={`after turn ${at} of ${last}`}
        onInput={(event) => setAt(Number(event.currentTarget.value))}
      />
      <Button
        kind="quiet small icon"
        label="One turn later"
        whyNot={past.turn >= last ? "This is the last turn." : null}
        onClick={() => step(1)}
      >
        <Icon name="chevronRight" size={14} />
      </Button>
      <Button kind="small" onClick={() => change({ turn: null, execution: isCurrent ? null : past.execution })}>
        Back to now
      </Button>
    </div>
  );
}
