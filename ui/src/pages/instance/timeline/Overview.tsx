// The whole timeline in a strip above it: where operations lie, what failed, and which part is shown.
// The only drawing on a canvas.
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";

import { theme } from "../../../frame/theme.ts";
import type { Bucket, Operation } from "../data.ts";
import { endOf } from "./bars.ts";
import { isFailing } from "./rows.ts";
import { clampView, type Scale, type View } from "./scale.ts";

const HEIGHT = 36;

interface Props {
  scale: Scale;
  view: View;
  operations: readonly Operation[];
  buckets: readonly Bucket[];
  turns: readonly { at_ms: number }[];
  nowMs: number;
  width: number;
  onView: (view: View) => void;
}

export function Overview(props: Props): JSX.Element {
  const canvas = useRef<HTMLCanvasElement>(null);
  const { scale, view, width } = props;
  useEffect(() => draw(canvas.current, props), [scale, props.operations, props.buckets, props.turns, width, theme.value]);
  const [left, right] = [(view.from / scale.length) * 100, (1 - view.to / scale.length) * 100];
  return (
    <div class="tl-overview" onPointerDown={(event) => drag(event, props)} onWheel={(event) => wheel(event, props)}>
      <canvas ref={canvas} style={{ width: `${width}px`, height: `${HEIGHT}px` }} aria-hidden="true" />
      <div class="tl-window" style={{ insetInlineStart: `${left}%`, insetInlineEnd: `${right}%` }}>
        <span class="tl-handle from" />
        <span class="tl-handle to" />
      </div>
    </div>
  );
}

function wheel(event: WheelEvent, { scale, view, onView }: Props): void {
  event.preventDefault();
  const by = ((event.deltaY || event.deltaX) / 600) * (view.to - view.from);
  onView(clampView({ from: view.from + by, to: view.to + by }, scale.length));
}

/** Drags an edge of the window, the window, or a new one. */
function drag(event: PointerEvent, { scale, view, onView }: Props): void {
  const strip = event.currentTarget as HTMLElement;
  const box = strip.getBoundingClientRect();
  const at = (x: number) => ((x - box.left) / box.width) * scale.length;
  const [first, edge] = [at(event.clientX), (7 / box.width) * scale.length];
  const part =
    Math.abs(first - view.from) < edge
      ? "from"
      : Math.abs(first - view.to) < edge
        ? "to"
        : first > view.from && first < view.to
          ? "all"
          : "new";
  const isWhole = view.from <= 0 && view.to >= scale.length;
  strip.setPointerCapture(event.pointerId);
  const move = (moved: PointerEvent) => {
    const place = at(moved.clientX);
    if (part === "from") onView(clampView({ from: Math.min(place, view.to), to: view.to }, scale.length));
    else if (part === "to") onView(clampView({ from: view.from, to: Math.max(place, view.from) }, scale.length));
    else if (part === "all" && !isWhole)
      onView(clampView({ from: view.from + place - first, to: view.to + place - first }, scale.length));
    else if (Math.abs(place - first) > edge)
      onView(clampView({ from: Math.min(first, place), to: Math.max(first, place) }, scale.length));
  };
  const up = () => {
    strip.removeEventListener("pointermove", move);
    strip.removeEventListener("pointerup", up);
  };
  strip.addEventListener("pointermove", move);
  strip.addEventListener("pointerup", up);
}

function draw(canvas: HTMLCanvasElement | null, { scale, operations, buckets, turns, nowMs, width }: Props): void {
  const pen = canvas?.getContext("2d") ?? null;
  if (canvas === null || pen === null || width < 1) return;
  const ratio = devicePixelRatio || 1;
  [canvas.width, canvas.height] = [Math.round(width * ratio), Math.round(HEIGHT * ratio)];
  pen.scale(ratio, ratio);
  const style = getComputedStyle(canvas);
  const colour = (name: string) => style.getPropertyValue(name).trim();
  const x = (ms: number) => (scale.place(ms) / scale.length) * width;
  const [busy, open, bad, tick, idle] = ["--tl-run", "--tl-wait", "--tl-bad", "--text-3", "--line"].map((name) =>
    resolved(canvas, colour(name)),
  );
  for (const fold of scale.folds) {
    pen.fillStyle = idle ?? "";
    pen.fillRect((fold.from / scale.length) * width, 0, ((fold.to - fold.from) / scale.length) * width, HEIGHT);
  }
  const most = Math.max(1, ...buckets.map((bucket) => Math.max(bucket.scheduled, bucket.ended)));
  buckets.forEach((bucket, index) => {
    const [from, to] = [x(bucket.from_ms), x(buckets[index + 1]?.from_ms ?? nowMs)];
    pen.fillStyle = (bucket.failed > 0 ? bad : busy) ?? "";
    const height = Math.sqrt(Math.max(bucket.scheduled, bucket.ended) / most) * (HEIGHT - 8);
    pen.fillRect(from, HEIGHT - 6 - height, Math.max(1, to - from - 0.5), height);
  });
  if (buckets.length === 0) {
    const step = Math.min(5, (HEIGHT - 8) / Math.max(1, operations.length));
    operations.forEach((operation, index) => {
      const [from, to] = [x(operation.scheduled_ms), x(Math.min(endOf(operation, nowMs), scale.endMs))];
      pen.fillStyle = (isFailing(operation) ? bad : operation.outcome === "open" ? open : busy) ?? "";
      pen.fillRect(from, 2 + index * step, Math.max(2, to - from), Math.max(1, Math.min(3, step - 0.6)));
    });
  }
  pen.fillStyle = tick ?? "";
  let last = -3;
  for (const { at_ms } of turns) {
    const at = x(at_ms);
    if (at - last < 2) continue;
    pen.fillRect(at, HEIGHT - 4, 1, 4);
    last = at;
  }
}

/** The colour that a custom property stands for: a canvas does not know `light-dark()`. */
function resolved(near: HTMLElement, value: string): string {
  const probe = near.parentElement;
  if (probe === null) return value;
  const before = probe.style.outlineColor;
  probe.style.outlineColor = value;
  const colour = getComputedStyle(probe).outlineColor;
  probe.style.outlineColor = before;
  return colour;
}
