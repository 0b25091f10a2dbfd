// The axis: round times, turns as ticks, and what was folded. Dragging over it zooms to the part that was dragged over.
import type { JSX } from "preact";
import { useState } from "preact/hooks";

import { durationText, exactText, timeForm } from "../../../design/time.tsx";
import { href } from "../../../router/router.ts";
import type { TurnMark } from "../data.ts";
import { clampView, ticksOf, type Scale, type View } from "./scale.ts";

/** Turns that would touch are drawn as one. */
const TURN_PX = 5;
const MAX_TURNS = 160;

interface Props {
  scale: Scale;
  view: View;
  width: number;
  turns: readonly TurnMark[];
  id: string;
  execution: number;
  endLabel: string | null;
  endMs: number;
  onView: (view: View) => void;
}

export function Axis(props: Props): JSX.Element {
  const { scale, view, width } = props;
  const [brush, setBrush] = useState<readonly [number, number] | null>(null);
  const isElapsed = timeForm.value === "relative";
  const offset = new Date(scale.startMs).getTimezoneOffset() * 60_000;
  const origin = isElapsed
    ? scale.startMs
    : Math.floor(scale.startMs / 86_400_000) * 86_400_000 + (timeForm.value === "utc" ? 0 : offset % 86_400_000);
  const middles = scale.folds.map((fold) => ((fold.from + fold.to) / 2 - view.from) / (view.to - view.from));
  // No time stands under the label of a folded one, or beyond the edge.
  const isFree = (at: number) =>
    (1 - at) * width > 62 && middles.every((middle) => (at - middle) * width > 34 || (middle - at) * width > 72);
  const ticks = ticksOf(scale, view, width, isElapsed ? 72 : 88, origin).filter((tick) => isFree(tick.at));
  const at = (ms: number) => (scale.place(ms) - view.from) / (view.to - view.from);
  const press = (event: PointerEvent) => {
    if (event.button !== 0 || (event.target as HTMLElement).closest("a") !== null) return;
    const axis = event.currentTarget as HTMLElement;
    const box = axis.getBoundingClientRect();
    const place = (x: number) => Math.min(1, Math.max(0, (x - box.left) / box.width));
    const first = place(event.clientX);
    axis.setPointerCapture(event.pointerId);
    const move = (moved: PointerEvent) =>
      setBrush([Math.min(first, place(moved.clientX)), Math.max(first, place(moved.clientX))]);
    const up = (ended: PointerEvent) => {
      axis.removeEventListener("pointermove", move);
      axis.removeEventListener("pointerup", up);
      setBrush(null);
      const last = place(ended.clientX);
      if (Math.abs(last - first) * box.width < 6) return;
      const span = view.to - view.from;
      props.onView(
        clampView({ from: view.from + Math.min(first, last) * span, to: view.from + Math.max(first, last) * span }, scale.length),
      );
    };
    axis.addEventListener("pointermove", move);
    axis.addEventListener("pointerup", up);
  };
  const end = at(props.endMs);
  return (
    <div class="tl-axis" onPointerDown={press} title="Drag to zoom to a part; the wheel zooms too">
      {ticks.map((tick) => (
        <span key={tick.ms} class="tl-tick" style={{ insetInlineStart: `${tick.at * 100}%` }} title={exactText(tick.ms)}>
          {isElapsed ? elapsed(tick.ms - scale.startMs) : clock(tick.ms, view.to - view.from)}
        </span>
      ))}
      {scale.folds.map((fold) => {
        const middle = ((fold.from + fold.to) / 2 - view.from) / (view.to - view.from);
        return middle < 0 || middle > 1 ? null : (
          <span
            key={fold.fromMs}
            class="tl-fold-label"
            style={{ insetInlineStart: `clamp(2rem, ${middle * 100}%, calc(100% - 2rem))` }}
            title="Idle time, folded"
          >
            {durationText(fold.toMs - fold.fromMs)}
          </span>
        );
      })}
      {turnsIn(props, at).map((turn) => (
        <a
          key={turn.number}
          class="tl-turn"
          style={{ insetInlineStart: `${at(turn.at_ms) * 100}%` }}
          tabIndex={-1}
          aria-hidden="true"
          href={href(["instances", props.id], { tab: "history", execution: props.execution, at: turn.number })}
          title={`turn ${turn.number}${turn.more > 0 ? ` and ${turn.more} more` : ""}\n${exactText(turn.at_ms)}`}
        />
      ))}
      {props.endLabel !== null && end >= 0 && end <= 1 && (
        <span class="tl-now-label" style={{ insetInlineStart: `${end * 100}%` }}>
          {props.endLabel}
        </span>
      )}
      {brush !== null && (
        <span class="tl-brush" style={{ insetInlineStart: `${brush[0] * 100}%`, width: `${(brush[1] - brush[0]) * 100}%` }} />
      )}
    </div>
  );
}

/** The turns in view, those that would touch gathered into one. */
function turnsIn({ turns, width }: Props, at: (ms: number) => number): (TurnMark & { more: number })[] {
  const shown: (TurnMark & { more: number })[] = [];
  let last = -Infinity;
  for (const turn of turns) {
    const place = at(turn.at_ms);
    if (place < 0 || place > 1) continue;
    const before = shown.at(-1);
    if (before !== undefined && ((place - last) * width < TURN_PX || shown.length >= MAX_TURNS)) {
      before.more += 1;
      continue;
    }
    shown.push({ ...turn, more: 0 });
    last = place;
  }
  return shown;
}

function elapsed(ms: number): string {
  return ms <= 0 ? "0" : `+${durationText(ms).replace(/\.0 s/, " s")}`;
}

function clock(ms: number, span: number): string {
  const date = new Date(ms);
  const part =
    timeForm.value === "utc"
      ? { h: date.getUTCHours(), m: date.getUTCMinutes(), s: date.getUTCSeconds(), d: date.getUTCDate(), o: date.getUTCMonth() }
      : { h: date.getHours(), m: date.getMinutes(), s: date.getSeconds(), d: date.getDate(), o: date.getMonth() };
  const two = (value: number) => String(value).padStart(2, "0");
  if (span > 3 * 86_400_000) return `${part.d}.${part.o + 1}.`;
  const time = `${two(part.h)}:${two(part.m)}`;
  if (span > 600_000) return time;
  return `${time}:${two(part.s)}${span < 10_000 ? `.${String(date.getMilliseconds()).padStart(3, "0")}` : ""}`;
}
