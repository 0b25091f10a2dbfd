// The timeline as a table: the same rows with their times in columns.
import type { JSX, RefObject } from "preact";

import { Text } from "../../../design/Id.tsx";
import { Time, durationText } from "../../../design/time.tsx";
import { Virtual, type VirtualHandle } from "../../../design/Virtual.tsx";
import { attemptsOf, KIND_WORDS, endOf, isInstant, lastError, sumsOf } from "./bars.ts";
import { isFailing, type Row } from "./rows.ts";
import { TimelineRow, type Drawing } from "./TimelineRow.tsx";

const COLUMNS = ["Operation", "Kind", "Event", "Scheduled", "Took", "Queue", "Run", "Pause", "Attempts", "Outcome"];

export function TimelineTable({
  rows,
  drawing,
  handle,
}: {
  rows: readonly Row[];
  drawing: Drawing;
  handle: RefObject<VirtualHandle | null>;
}): JSX.Element {
  const head = (
    <div role="row" class="tl-cells head">
      {COLUMNS.map((name) => (
        <span key={name} role="columnheader">
          {name}
        </span>
      ))}
    </div>
  );
  return (
    <Virtual
      class="tl-table"
      role="table"
      label="Operations"
      count={rows.length}
      rowHeight={30}
      handle={handle}
      head={head}
      keyOf={(index) => rows[index]?.key ?? index}
    >
      {(index) => {
        const row = rows[index];
        if (row === undefined) return null;
        return row.is === "operation" ? (
          <Cells row={row} index={index} drawing={drawing} />
        ) : (
          <TimelineRow row={row} index={index} drawing={drawing} />
        );
      }}
    </Virtual>
  );
}

function Cells({
  row,
  index,
  drawing,
}: {
  row: Extract<Row, { is: "operation" }>;
  index: number;
  drawing: Drawing;
}): JSX.Element {
  const { operation } = row;
  const sums = sumsOf(operation, drawing.nowMs);
  const error = lastError(operation);
  const time = (ms: number) => (ms === 0 ? "–" : durationText(ms));
  return (
    <div
      role="row"
      aria-rowindex={index + 2}
      class={`tl-cells ${drawing.selected === row.key ? "selected" : ""}`}
      onClick={() => drawing.onSelect(row)}
    >
      <span role="rowheader" class="clip" style={{ paddingInlineStart: `${row.depth * 0.85}rem` }}>
        <button type="button" class="tl-cell-button clip" onClick={() => drawing.onSelect(row)}>
          <Text text={operation.name === "" ? KIND_WORDS[operation.kind] : operation.name} />
        </button>
      </span>
      <span role="cell">{KIND_WORDS[operation.kind]}</span>
      <span role="cell">{operation.event}</span>
      <span role="cell">
        <Time ms={operation.scheduled_ms} />
      </span>
      <span role="cell">
        {isInstant(operation) ? "–" : durationText(endOf(operation, drawing.nowMs) - operation.scheduled_ms)}
      </span>
      <span role="cell">{time(sums.queue)}</span>
      <span role="cell">{time(sums.run)}</span>
      <span role="cell">{time(sums.pause)}</span>
      <span role="cell">{operation.kind === "activity" ? Math.max(1, attemptsOf(operation)) : "–"}</span>
      <span role="cell" class={`clip ${isFailing(operation) ? "red" : ""}`}>
        {operation.outcome}
        {error !== null && (
          <>
            : <Text text={error} />
          </>
        )}
      </span>
    </div>
  );
}
