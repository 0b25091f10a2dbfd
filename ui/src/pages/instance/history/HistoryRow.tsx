// The rows of a history: a turn, an event, or an operation with what it came to.
import type { JSX } from "preact";

import { Text } from "../../../design/Id.tsx";
import { Icon } from "../../../design/icons.tsx";
import { Time, durationText } from "../../../design/time.tsx";
import { change } from "../../../router/router.ts";
import type { EventRecord, TurnRecord } from "../data.ts";
import { KIND_ICONS, KIND_WORDS } from "../timeline/bars.ts";
import { attemptsOf, kindOf, nameOf, summaryOf, toneOf } from "./events.ts";
import type { Grouped } from "./operations.ts";

export function TurnRow({ turn, index }: { turn: TurnRecord; index: number }): JSX.Element {
  return (
    <div role="row" aria-rowindex={index + 2} class="ev-turn" data-turn={turn.number}>
      <span role="rowheader">Turn {turn.number.toLocaleString("en")}</span>
      <span role="cell" class="muted">
        <Time ms={turn.at_ms} />
      </span>
      <span role="cell" class="push">
        <button
          type="button"
          class="button quiet small"
          onClick={() => change({ turn: turn.number, tab: null, event: null })}
          title="Show the instance as it was after this turn"
        >
          <Icon name="past" size={13} /> as it was then
        </button>
      </span>
    </div>
  );
}

export function EventRow(props: {
  event: EventRecord;
  turn: number;
  atMs: number;
  index: number;
  isSelected: boolean;
  isMatch: boolean;
  of: string;
  onSelect: (event: number) => void;
}): JSX.Element {
  const { event } = props;
  const [name, summary, attempts] = [nameOf(event), summaryOf(event), attemptsOf(event)];
  return (
    <div
      role="row"
      aria-rowindex={props.index + 2}
      class={`ev-row ${props.isSelected ? "selected" : ""}`}
      data-event={event.id}
      onClick={() => props.onSelect(event.id)}
    >
      <span role="cell" class="ev-id">
        {event.id}
      </span>
      <span role="rowheader" class={`ev-kind ${toneOf(event)}`}>
        <button
          type="button"
          class="ev-button"
          aria-pressed={props.isSelected}
          onClick={(click) => {
            click.stopPropagation();
            props.onSelect(event.id);
          }}
        >
          {kindOf(event)}
        </button>
      </span>
      <span role="cell" class="ev-what">
        {name !== "" ? (
          <strong class="clip">
            <Text text={name} />
          </strong>
        ) : (
          props.of !== "" && (
            <span class="clip muted">
              <Text text={props.of} />
            </span>
          )
        )}
        {event.unit !== undefined && (
          <button
            type="button"
            class="ev-unit"
            title={`Only unit ${event.unit}`}
            onClick={(click) => {
              click.stopPropagation();
              change({ unit: event.unit ?? null });
            }}
          >
            <Text text={event.unit} />
          </button>
        )}
        {attempts > 1 && <span class="count">×{attempts}</span>}
        <span class="clip mono ev-summary">
          <Text text={summary} />
        </span>
      </span>
      {props.isMatch && (
        <span role="cell" class="muted nowrap">
          turn {props.turn}, <Time ms={props.atMs} />
        </span>
      )}
    </div>
  );
}

export function OperationLine({
  group,
  index,
  isSelected,
  onSelect,
}: {
  group: Grouped;
  index: number;
  isSelected: boolean;
  onSelect: (event: number) => void;
}): JSX.Element {
  const first = group.begun ?? group.ended;
  const tone =
    group.outcome === "failed" ? "bad" : group.outcome === "open" ? "begin" : group.outcome === "cancelled" ? "stop" : "good";
  if (first === null) return <div role="row" />;
  const title = group.kind === null ? kindOf(first) : group.name === "" ? KIND_WORDS[group.kind] : group.name;
  return (
    <div
      role="row"
      aria-rowindex={index + 2}
      class={`ev-row grouped ${isSelected ? "selected" : ""}`}
      data-event={first.id}
      onClick={() => onSelect(first.id)}
    >
      <span role="cell" class="ev-id">
        {first.id}
        {group.begun !== null && group.ended !== null && ` → ${group.ended.id}`}
      </span>
      <span role="rowheader" class={`ev-kind ${group.kind === null ? "plain" : tone}`}>
        {group.kind !== null && <Icon name={KIND_ICONS[group.kind]} size={13} />}
        <button
          type="button"
          class="ev-button clip"
          onClick={(click) => {
            click.stopPropagation();
            onSelect(first.id);
          }}
        >
          <Text text={title} />
        </button>
      </span>
      <span role="cell" class="clip mono ev-summary">
        {group.begun !== null && <Text text={summaryOf(group.begun)} />}
      </span>
      <span role="cell" class={`clip mono ev-summary ${group.outcome === "failed" ? "red" : ""}`}>
        {group.ended !== null ? (
          <button
            type="button"
            class="ev-button clip"
            onClick={(click) => {
              click.stopPropagation();
              if (group.ended !== null) onSelect(group.ended.id);
            }}
          >
            <Text text={summaryOf(group.ended) || kindOf(group.ended)} />
          </button>
        ) : group.kind !== null && group.outcome === "open" ? (
          <span class="muted">open</span>
        ) : null}
      </span>
      <span role="cell" class="muted nowrap ev-took">
        {group.begun !== null && group.ended !== null ? durationText(group.endedMs - group.begunMs) : ""}
      </span>
    </div>
  );
}
