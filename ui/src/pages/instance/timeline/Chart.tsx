// The bars of the timeline with their axis, the overview above them, and what lies over all rows: folded times and the now line.
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";

import { Virtual, type VirtualHandle } from "../../../design/Virtual.tsx";
import { Axis } from "./Axis.tsx";
import { Overview } from "./Overview.tsx";
import { TimelineRow, type Drawing } from "./TimelineRow.tsx";
import type { Row } from "./rows.ts";
import type { View } from "./scale.ts";

const ROW_PX = 28;

export function Chart(props: {
  rows: readonly Row[];
  drawing: Drawing;
  turns: Parameters<typeof Axis>[0]["turns"];
  execution: number;
  id: string;
  operations: Parameters<typeof Overview>[0]["operations"];
  buckets: Parameters<typeof Overview>[0]["buckets"];
  list: { current: VirtualHandle | null };
  endLabel: string | null;
  onView: (view: View) => void;
  onZoom: (factor: number, at: number) => void;
  onPan: (by: number) => void;
}): JSX.Element {
  const { rows, drawing, turns, onView } = props;
  const { scale, view, width, nowMs } = drawing;
  const chart = useRef<HTMLDivElement>(null);
  const latest = useRef(props);
  latest.current = props;
  useEffect(() => {
    // Not passive, so that the page does not scroll or zoom with it.
    const wheel = (event: WheelEvent) => {
      const overAxis = (event.target as Element).closest(".tl-axis") !== null;
      const track = chart.current?.querySelector(".tl-axis")?.getBoundingClientRect();
      if (track === undefined) return;
      if (event.ctrlKey || event.metaKey || overAxis) {
        event.preventDefault();
        latest.current.onZoom(
          Math.exp(event.deltaY * 0.0022),
          Math.min(1, Math.max(0, (event.clientX - track.left) / track.width)),
        );
      } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        event.preventDefault();
        latest.current.onPan(((event.deltaX || event.deltaY) / track.width) * 0.8);
      }
    };
    const element = chart.current;
    element?.addEventListener("wheel", wheel, { passive: false });
    return () => element?.removeEventListener("wheel", wheel);
  }, []);
  const at = (place: number) => (place - view.from) / (view.to - view.from);
  const end = at(scale.place(nowMs));
  // The axis and the overview lie along the same time.
  const along = { scale, view, width, turns, onView };
  const head = (
    <div class="tl-head" role="row">
      <div class="tl-label" role="columnheader">
        {width < 1 ? "" : "Operation"}
      </div>
      <div class="tl-track" role="columnheader" aria-label="Time">
        <Axis {...along} id={props.id} execution={props.execution} endLabel={props.endLabel} endMs={nowMs} />
      </div>
    </div>
  );
  return (
    <div class="tl-bars" ref={chart}>
      <div class="tl-strip">
        <Overview {...along} operations={props.operations} buckets={props.buckets} nowMs={nowMs} />
      </div>
      <div class="tl-body">
        <Virtual
          class="tl-rows"
          role="table"
          label="Timeline"
          count={rows.length}
          rowHeight={ROW_PX}
          handle={props.list}
          head={head}
          keyOf={(index) => rows[index]?.key ?? index}
        >
          {(index) => {
            const row = rows[index];
            return row === undefined ? null : <TimelineRow row={row} index={index} drawing={drawing} />;
          }}
        </Virtual>
        <div class="tl-over" aria-hidden="true" style={{ width: `${width}px` }}>
          {scale.folds.map((fold) => {
            const [from, to] = [Math.max(0, at(fold.from)), Math.min(1, at(fold.to))];
            return to <= 0 || from >= 1 ? null : (
              <span
                key={fold.fromMs}
                class="tl-fold"
                style={{ insetInlineStart: `${from * 100}%`, width: `${(to - from) * 100}%` }}
              />
            );
          })}
          {props.endLabel !== null && end >= 0 && end <= 1 && (
            <span class="tl-now" style={{ insetInlineStart: `${end * 100}%` }} />
          )}
        </div>
      </div>
      <Legend />
    </div>
  );
}

function Legend(): JSX.Element {
  const parts = [
    ["queue", "queued"],
    ["run", "running"],
    ["run bad", "failed attempt"],
    ["pause", "pause before a retry"],
    ["wait", "waiting"],
    ["until", "until it is due"],
  ];
  return (
    <ul class="tl-legend" aria-label="Legend">
      {parts.map(([kind, text]) => (
        <li key={kind}>
          <span class={`tl-seg ${kind}`} />
          {text}
        </li>
      ))}
    </ul>
  );
}
