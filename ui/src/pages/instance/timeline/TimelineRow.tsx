// One row of the timeline: what it is at the left, its bar at the right.
import type { JSX } from "preact";

import { Icon } from "../../../design/icons.tsx";
import { Text } from "../../../design/Id.tsx";
import { durationText } from "../../../design/time.tsx";
import type { Operation } from "../data.ts";
import { attemptsOf, KIND_ICONS, KIND_WORDS, endOf, lastError, nameOfBar, segmentsOf, type Segment } from "./bars.ts";
import { isFailing, isRetried, type Row } from "./rows.ts";
import type { Scale, View } from "./scale.ts";

/** More segments than this are drawn as one. */
const MAX_SEGMENTS = 42;

export interface Drawing {
  scale: Scale;
  view: View;
  width: number;
  nowMs: number;
  selected: string | null;
  isPathLit: boolean;
  onSelect: (row: Extract<Row, { is: "operation" }>) => void;
  onToggle: (row: Row) => void;
}

export function TimelineRow({ row, index, drawing }: { row: Row; index: number; drawing: Drawing }): JSX.Element {
  const indent = { paddingInlineStart: `${0.5 + Math.min(row.depth, 12) * 0.85}rem` };
  switch (row.is) {
    case "operation":
      return <OperationRow row={row} index={index} drawing={drawing} />;
    case "unit": {
      const failing = row.operations.filter(isFailing).length;
      return (
        <div role="row" aria-rowindex={index + 2} class="tl-row band">
          <div role="rowheader" class="tl-label" style={indent}>
            <Chevron isOpen={!row.isFolded} label={`Unit ${row.unit}`} onClick={() => drawing.onToggle(row)} />
            <span class="clip">
              unit{" "}
              <code>
                <Text text={row.unit} />
              </code>
            </span>
            <span class="count">{row.operations.length}</span>
            {failing > 0 && (
              <span class="tl-count-bad" title={`${failing} failed`}>
                {failing}
              </span>
            )}
          </div>
          <div role="cell" class="tl-track">
            <BandBar operations={row.operations} drawing={drawing} />
          </div>
        </div>
      );
    }
    case "execution":
      return (
        <div role="row" aria-rowindex={index + 2} class="tl-row band">
          <div role="rowheader" class="tl-label" style={indent}>
            <Chevron isOpen={row.isUnfolded} label={`Execution ${row.execution}`} onClick={() => drawing.onToggle(row)} />
            <span class="clip">execution {row.execution}</span>
          </div>
          <div role="cell" class="tl-track">
            {row.source !== null && <BandBar operations={row.source.operations.value} drawing={drawing} />}
          </div>
        </div>
      );
    case "earlier":
      return (
        <div role="row" aria-rowindex={index + 2} class="tl-row">
          <div role="rowheader" class="tl-label" style={indent}>
            <button type="button" class="button quiet small" onClick={() => drawing.onToggle(row)}>
              {row.source.isLoadingEarlier.value
                ? "Loading…"
                : `${row.count.toLocaleString("en")} earlier operations${row.source.zoomed.value === null ? "" : "; zoom in"}`}
            </button>
          </div>
          <div role="cell" class="tl-track" />
        </div>
      );
    case "waiting": {
      const problem = row.source.loaded.problem.value;
      return (
        <div role="row" aria-rowindex={index + 2} class="tl-row">
          <div role="rowheader" class="tl-label muted" style={indent}>
            {problem === null ? (
              "Loading…"
            ) : (
              <button
                type="button"
                class="button quiet small"
                title={problem.detail}
                onClick={() => void row.source.loaded.reload()}
              >
                <span class="red clip">{problem.title}</span> Try again
              </button>
            )}
          </div>
          <div role="cell" class="tl-track" />
        </div>
      );
    }
  }
}

function Chevron({ isOpen, label, onClick }: { isOpen: boolean; label: string; onClick: () => void }): JSX.Element {
  return (
    <button
      type="button"
      class="tl-chevron"
      aria-expanded={isOpen}
      aria-label={label}
      onClick={(event) => {
        event.stopPropagation();
        onClick();
      }}
    >
      <Icon name={isOpen ? "chevronDown" : "chevronRight"} size={12} />
    </button>
  );
}

function OperationRow({
  row,
  index,
  drawing,
}: {
  row: Extract<Row, { is: "operation" }>;
  index: number;
  drawing: Drawing;
}): JSX.Element {
  const { operation } = row;
  const isSelected = drawing.selected === row.key;
  const canUnfold = operation.kind === "child" && operation.instance !== undefined;
  const isDim = drawing.isPathLit && !row.isOnPath;
  const title = operation.name === "" ? KIND_WORDS[operation.kind] : operation.name;
  return (
    <div
      role="row"
      aria-rowindex={index + 2}
      class={`tl-row ${isSelected ? "selected" : ""} ${isDim ? "dim" : ""} ${drawing.isPathLit && row.isOnPath ? "lit" : ""}`}
    >
      <div
        role="rowheader"
        class="tl-label"
        style={{ paddingInlineStart: `${0.5 + Math.min(row.depth, 12) * 0.85}rem` }}
        onClick={() => drawing.onSelect(row)}
      >
        {canUnfold ? (
          <Chevron
            isOpen={row.isUnfolded}
            label={`Operations of child ${operation.instance ?? ""}`}
            onClick={() => drawing.onToggle(row)}
          />
        ) : (
          <span class={`tl-kind ${isFailing(operation) ? "bad" : operation.outcome}`} title={KIND_WORDS[operation.kind]}>
            <Icon name={KIND_ICONS[operation.kind]} size={13} />
          </span>
        )}
        <span class="clip tl-name">
          <Text text={title} />
        </span>
        {operation.instance !== undefined && (
          <span class="tl-child clip">
            <Text text={shortId(operation.instance, row.source.id)} />
          </span>
        )}
        {isRetried(operation) && (
          <span class={`count ${isFailing(operation) ? "red" : ""}`} title="Attempts">
            ×{attemptsOf(operation)}
          </span>
        )}
        <span class="tl-event">{operation.event}</span>
      </div>
      <div role="cell" class="tl-track">
        <Bar operation={operation} isSelected={isSelected} drawing={drawing} onSelect={() => drawing.onSelect(row)} />
      </div>
    </div>
  );
}

/** A child's id mostly begins with its parent's. */
function shortId(id: string, parent: string): string {
  return id.startsWith(parent) ? id.slice(parent.length) : id;
}

function Bar({
  operation,
  isSelected,
  drawing,
  onSelect,
}: {
  operation: Operation;
  isSelected: boolean;
  drawing: Drawing;
  onSelect: () => void;
}): JSX.Element {
  const { scale, view, nowMs, width } = drawing;
  const span = view.to - view.from;
  const at = (ms: number) => (scale.place(Math.min(ms, scale.endMs)) - view.from) / span;
  const end = endOf(operation, nowMs);
  const [from, to] = [at(operation.scheduled_ms), at(end)];
  const name = nameOfBar(operation, nowMs);
  const isAway = to < 0 || from > 1;
  const error = lastError(operation);
  const beside = `${durationText(end - operation.scheduled_ms)}${error === null ? "" : ` · ${error.slice(0, 120)}`}`;
  const [left, right] = [Math.max(0, from), Math.min(1, to)];
  // The words stand after the bar if there is room, otherwise before it, otherwise over it.
  const isAfter = (1 - right) * width > 90;
  const isBefore = !isAfter && left * width > 90;
  return (
    <>
      {!isAway &&
        drawn(segmentsOf(operation, nowMs), at, width).map((part, index) => (
          <span
            key={index}
            class={classOf(part, operation)}
            style={{ insetInlineStart: placeOf(part, width), width: `${(part.to - part.from) * 100}%` }}
          />
        ))}
      <button
        type="button"
        class={`tl-bar ${isAway ? "away" : ""}`}
        aria-label={name}
        aria-pressed={isSelected}
        title={name.replaceAll(", ", "\n")}
        onClick={onSelect}
        style={
          isAway
            ? { insetInlineStart: to < 0 ? "0" : "calc(100% - 1.5rem)" }
            : { insetInlineStart: `${left * 100}%`, width: `${Math.max(0, right - left) * 100}%` }
        }
      >
        {isAway && <Icon name={to < 0 ? "chevronLeft" : "chevronRight"} size={12} />}
      </button>
      {!isAway && (
        <span
          class={`tl-beside ${isFailing(operation) ? "bad" : ""} ${isAfter ? "after" : isBefore ? "before" : "over"}`}
          aria-hidden="true"
          style={
            isAfter
              ? { insetInlineStart: `calc(${right * 100}% + 0.5rem)`, maxWidth: `calc(${(1 - right) * 100}% - 0.5rem)` }
              : isBefore
                ? { insetInlineEnd: `calc(${(1 - left) * 100}% + 0.5rem)`, maxWidth: `calc(${left * 100}% - 0.5rem)` }
                : { insetInlineEnd: "0.75rem" }
          }
        >
          <Text text={beside} />
        </span>
      )}
    </>
  );
}

function classOf(part: Segment, operation: Operation): string {
  const marks = [part.isFailed && "bad", part.isOpen && "going", operation.outcome === "cancelled" && "cancelled"];
  return ["tl-seg", part.kind, ...marks.filter((mark) => mark !== false)].join(" ");
}

/** The least that a segment is drawn with. */
const LEAST_PX = 3;

/** Where a segment begins. One that is too short to be seen is drawn longer, and must not lie beyond the edge. */
function placeOf(part: Drawn, width: number): string {
  const latest = width > 0 ? 1 - LEAST_PX / width : 1;
  return `${(part.from > latest && part.from <= 1 ? latest : part.from) * 100}%`;
}

interface Drawn extends Segment {
  from: number;
  to: number;
}

/** The segments in view. Neighbours of a kind that are too short to be told apart are drawn as one. */
function drawn(parts: readonly Segment[], at: (ms: number) => number, width: number): Drawn[] {
  const shown: Drawn[] = [];
  for (const part of parts) {
    const [from, to] = [at(part.fromMs), at(part.toMs)];
    if (to < 0 || from > 1) continue;
    const before = shown.at(-1);
    const isTiny = (to - from) * width < 1;
    const touches = before !== undefined && (from - before.to) * width < 1;
    if (
      before !== undefined &&
      touches &&
      isTiny &&
      part.kind !== "mark" &&
      (shown.length >= MAX_SEGMENTS || (before.to - before.from) * width < 2)
    ) {
      before.to = Math.max(before.to, to);
      before.isFailed ||= part.isFailed;
      if (part.kind === "run") before.kind = "run";
      continue;
    }
    if (part.kind === "queue" && part.toMs <= part.fromMs) continue;
    shown.push({ ...part, from: Math.max(-0.01, from), to: Math.min(1.01, to) });
  }
  return shown;
}

function BandBar({ operations, drawing }: { operations: readonly Operation[]; drawing: Drawing }): JSX.Element | null {
  if (operations.length === 0) return null;
  const { scale, view, nowMs } = drawing;
  const at = (ms: number) => (scale.place(Math.min(ms, scale.endMs)) - view.from) / (view.to - view.from);
  const from = Math.max(0, at(Math.min(...operations.map((operation) => operation.scheduled_ms))));
  const to = Math.min(1, at(Math.max(...operations.map((operation) => endOf(operation, nowMs)))));
  if (to < 0 || from > 1) return null;
  return <span class="tl-span" style={{ insetInlineStart: `${from * 100}%`, width: `${Math.max(0, to - from) * 100}%` }} />;
}
