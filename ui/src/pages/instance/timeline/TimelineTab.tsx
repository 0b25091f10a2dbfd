// The timeline: one row for each operation, in time.
import type { JSX } from "preact";
import { noteServerTime, now } from "../../../design/time.tsx";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import type { InstanceDetails } from "../../../api/types.ts";
import { useKeys } from "../../../design/keys.ts";
import { Empty, Problem, Waiting } from "../../../design/Problem.tsx";
import type { VirtualHandle } from "../../../design/Virtual.tsx";
import { change, choice, param } from "../../../router/router.ts";
import { numberParam, pastOf, type InstanceModel } from "../model.ts";
import { Chart } from "./Chart.tsx";
import { OperationSide, SumsSide } from "./Side.tsx";
import type { Drawing } from "./TimelineRow.tsx";
import { TimelineTable } from "./TimelineTable.tsx";
import { Toolbar } from "./Toolbar.tsx";
import { pointsOf } from "./bars.ts";
import { ORDERS, isFailing, isRetried, rowsOf, spanOf, stepTargets, type Row, type Stepping } from "./rows.ts";
import { makeScale, zoomed, type Scale } from "./scale.ts";
import { Source } from "./sources.ts";
import { useView } from "./useView.ts";
import "./timeline.css";

const POLLED_MS = 2_000;
type OperationRow = Extract<Row, { is: "operation" }>;

export default function TimelineTab({ model, details }: { model: InstanceModel; details: InstanceDetails }): JSX.Element {
  const execution = numberParam("execution") ?? details.execution;
  const past = pastOf(details.execution);
  return <Timeline key={`${execution} ${past?.turn ?? ""}`} model={model} details={details} execution={execution} />;
}

interface Props {
  model: InstanceModel;
  details: InstanceDetails;
  execution: number;
}

function Timeline({ model, details, execution }: Props): JSX.Element {
  const past = pastOf(details.execution);
  const root = useMemo(
    () => new Source(model.id, execution, model.bound, past, (data) => past === null && noteServerTime(data.at_ms)),
    [],
  );
  const isLive = past === null && execution === details.execution && !model.isOver;
  useRoot(model, root, isLive);
  const problem = root.loaded.problem.value;
  const data = root.loaded.value.value;
  if (data === undefined) {
    return (
      <div class="one-problem">
        {problem === null ? <Waiting /> : <Problem problem={problem} onRetry={() => void root.loaded.reload()} />}
      </div>
    );
  }
  return (
    <>
      {problem !== null && (
        <div class="one-problem">
          <Problem problem={problem} onRetry={() => void root.loaded.reload()} />
        </div>
      )}
      <Drawn
        model={model}
        details={details}
        execution={execution}
        root={root}
        isLive={isLive}
        endMs={past === null ? null : data.at_ms}
      />
    </>
  );
}

/** Reads the execution, and again with every change; what runs changes without a turn, so it is read every few seconds. */
function useRoot(model: InstanceModel, root: Source, isLive: boolean): void {
  useEffect(() => {
    void root.loaded.reload();
    if (!isLive) return () => root.loaded.stop();
    const leave = model.listen({ turn: () => root.reload(), changed: () => root.reload() });
    const timer = setInterval(() => {
      const isBusy = root.operations
        .peek()
        .some((operation) => operation.outcome === "open" && operation.kind === "activity" && operation.state !== "waiting");
      if (isBusy && document.visibilityState === "visible") root.reload();
    }, POLLED_MS);
    return () => {
      leave();
      clearInterval(timer);
      root.loaded.stop();
    };
  }, [root, isLive]);
}

/** Children and earlier executions that were unfolded; they are followed as long as they are shown. */
function useUnfolded(model: InstanceModel): {
  children: ReadonlyMap<string, Source>;
  before: ReadonlyMap<number, Source>;
  toggleChild: (id: string) => void;
  toggleExecution: (execution: number) => void;
} {
  const [children, setChildren] = useState<ReadonlyMap<string, Source>>(new Map());
  const [before, setBefore] = useState<ReadonlyMap<number, Source>>(new Map());
  const leaving = useRef(new Map<Source, () => void>());
  useEffect(() => () => leaving.current.forEach((leave) => leave()), []);
  const toggleChild = (id: string) => {
    const next = new Map(children);
    const known = next.get(id);
    if (known !== undefined) {
      leaving.current.get(known)?.();
      leaving.current.delete(known);
      next.delete(id);
    } else {
      const source = new Source(id, null, {}, null);
      leaving.current.set(source, source.followed());
      next.set(id, source);
    }
    setChildren(next);
  };
  const toggleExecution = (execution: number) => {
    const next = new Map(before);
    if (!next.delete(execution)) {
      const source = new Source(model.id, execution, model.bound, null);
      void source.loaded.reload();
      next.set(execution, source);
    } else {
      // Those before it are reached through it.
      for (const other of [...next.keys()]) if (other < execution) next.delete(other);
    }
    setBefore(next);
  };
  return { children, before, toggleChild, toggleExecution };
}

function Drawn(props: Props & { root: Source; isLive: boolean; endMs: number | null }): JSX.Element {
  const { model, details, execution, root, isLive } = props;
  const unfolded = useUnfolded(model);
  const [foldedUnits, setFoldedUnits] = useState<ReadonlySet<string>>(new Set());
  const [box, width] = useWidth();
  const list = useRef<VirtualHandle>(null);
  const nowMs = props.endMs ?? now.value;
  const order = choice("order", ORDERS);
  const rows = rowsOf({ root, execution, before: unfolded.before, children: unfolded.children, foldedUnits, order, nowMs });
  const sources = [root, ...unfolded.before.values(), ...unfolded.children.values()];
  const operations = rows.flatMap((row) => (row.is === "operation" ? [row.operation] : []));
  const { startMs, endMs } = spanOf(sources, nowMs, isLive || props.endMs !== null);
  const turns = sources
    .slice(0, 1 + unfolded.before.size)
    .flatMap((source) => source.loaded.value.value?.turns ?? [])
    .sort((a, b) => a.at_ms - b.at_ms);
  const isFolding = param("idle") !== "shown";
  // The axis is that of the whole, whatever part of a long timeline was read.
  const whole = root.zoomed.value === null ? operations : (root.loaded.value.value?.operations ?? []);
  const scale: Scale = useMemo(
    () => makeScale(startMs, endMs, [...pointsOf(whole), ...turns.map((turn) => turn.at_ms), ...busyTimes(root)], isFolding),
    [startMs, endMs, isFolding, whole.length, root.loaded.value.value],
  );
  const shown = useView(scale, nowMs, isLive);
  useZoomedRead(root, scale, shown);
  const selected =
    rows.find((row): row is OperationRow => row.is === "operation" && row.key === selectionKey(model.id, execution)) ?? null;
  const select = (row: OperationRow | null) => {
    const isOwn = row?.source.id === model.id;
    change(
      {
        event: row === null ? null : row.operation.event,
        of: row === null || isOwn ? null : row.source.id,
        ofx: row === null || !isOwn || row.source.execution === execution ? null : row.source.execution,
        sums: null,
      },
      { replace: true },
    );
  };
  const goTo = (index: number) => {
    const row = rows[index];
    if (row?.is !== "operation") return;
    list.current?.scrollTo(index, "center");
    select(row);
    const at = scale.place(row.operation.scheduled_ms);
    if (at < shown.view.from || at > shown.view.to) {
      const half = (shown.view.to - shown.view.from) / 2;
      shown.set({ from: at - half, to: at + half });
    }
  };
  const step = (by: Stepping, direction = 1) => {
    const targets = stepTargets(rows, by, nowMs);
    const here = selected === null ? -1 : targets.indexOf(rows.indexOf(selected));
    const next = targets[(here + direction + targets.length) % Math.max(1, targets.length)];
    if (next !== undefined) goTo(next);
  };
  const move = (by: number) => {
    const from = selected === null ? (by > 0 ? -1 : rows.length) : rows.indexOf(selected);
    for (let index = from + by; index >= 0 && index < rows.length; index += by)
      if (rows[index]?.is === "operation") return goTo(index);
  };
  const zoom = (factor: number, at = 0.5) => shown.set(zoomed(shown.view, factor, shown.isFollowing ? 1 : at, scale.length));
  const pan = (by: number) => {
    const size = (shown.view.to - shown.view.from) * by;
    const from = Math.min(Math.max(0, shown.view.from + size), Math.max(0, scale.length - (shown.view.to - shown.view.from)));
    shown.set({ from, to: from + shown.view.to - shown.view.from });
  };
  useTimelineKeys(
    {
      zoom,
      pan,
      move,
      step,
      shown,
      selected,
      onOpen: () => selected?.operation.instance !== undefined && unfolded.toggleChild(selected.operation.instance),
    },
    [rows.length, selected, shown.view.from, shown.view.to, scale],
  );
  const toggle = (row: Row) => {
    if (row.is === "operation" && row.operation.instance !== undefined) unfolded.toggleChild(row.operation.instance);
    if (row.is === "execution" && row.execution !== execution) unfolded.toggleExecution(row.execution);
    if (row.is === "earlier") {
      const { from, to } = shown.view;
      // Of a part that is zoomed to, the beginning of it.
      if (row.source.zoomed.value === null) void row.source.loadEarlier();
      else shown.set({ from, to: from + (to - from) / 4 });
    }
    if (row.is === "unit") {
      const name = `${model.id} ${row.unit}`;
      const next = new Set(foldedUnits);
      if (!next.delete(name)) next.add(name);
      setFoldedUnits(next);
    }
  };
  const drawing: Drawing = {
    scale,
    view: shown.view,
    width,
    nowMs,
    selected: selected?.key ?? null,
    isPathLit: param("path") === "lit",
    onSelect: (row) => select(row.key === selected?.key ? null : row),
    onToggle: toggle,
  };
  const data = root.loaded.value.value;
  const isTable = param("as") === "table";
  const failing = operations.filter(isFailing).length;
  const retried = operations.filter(isRetried).length;
  useEffect(() => {
    // A linked event is brought into view.
    const index = selected === null ? -1 : rows.indexOf(selected);
    if (index >= 0) requestAnimationFrame(() => list.current?.scrollTo(index, "center"));
  }, []);
  if (rows.length === 0) {
    return (
      <Empty title={model.isOver ? "It scheduled no operations" : "No operations yet"}>
        <p>Activities, timers, waits, children, updates and sent events appear here as the code schedules them.</p>
      </Empty>
    );
  }
  return (
    <div class="tl">
      <Toolbar
        shown={shown}
        isLive={isLive}
        failing={failing}
        retried={retried}
        order={order}
        isFolding={isFolding}
        hasPath={(data?.critical_path.length ?? 0) > 0}
        onZoom={zoom}
        onStep={step}
      />
      <div class="tl-main">
        <div class="tl-chart" ref={box}>
          {isTable ? (
            <TimelineTable rows={rows} drawing={drawing} handle={list} />
          ) : (
            <Chart
              {...{ rows, drawing, turns, execution, list }}
              onView={shown.set}
              id={model.id}
              operations={[...unfolded.before.values(), root].flatMap((source) => source.operations.value)}
              buckets={data?.buckets ?? []}
              endLabel={props.endMs !== null ? "then" : isLive ? "now" : null}
              onZoom={zoom}
              onPan={pan}
            />
          )}
        </div>
        {selected !== null ? (
          <OperationSide
            model={model}
            details={details}
            operation={selected.operation}
            source={selected.source}
            nowMs={nowMs}
            onClose={() => select(null)}
          />
        ) : (
          param("sums") === "1" && (
            <SumsSide
              totals={data?.totals ?? []}
              hasMore={data?.more_totals === true}
              onClose={() => change({ sums: null }, { replace: true })}
            />
          )
        )}
      </div>
    </div>
  );
}

/** Times at which a long timeline is busy, by its counts. */
function busyTimes(source: Source): number[] {
  const buckets = source.loaded.value.value?.buckets ?? [];
  return buckets.flatMap((bucket, index) =>
    bucket.turns + bucket.scheduled + bucket.ended === 0 ? [] : [bucket.from_ms, buckets[index + 1]?.from_ms ?? bucket.from_ms],
  );
}

/** A part of a long timeline is read when the zoom rests on it. */
function useZoomedRead(root: Source, scale: Scale, shown: ReturnType<typeof useView>): void {
  const [from, to] = shown.isWhole
    ? [null, null]
    : [Math.floor(scale.time(shown.view.from)), Math.ceil(scale.time(shown.view.to))];
  const isLong = (root.loaded.value.value?.others ?? 0) > 0;
  useEffect(() => {
    if (!isLong) return;
    const timer = setTimeout(() => void root.zoomTo(from === null || to === null ? null : { from_ms: from, to_ms: to }), 250);
    return () => clearTimeout(timer);
  }, [isLong, from, to]);
}

function selectionKey(id: string, execution: number): string | null {
  const event = numberParam("event");
  if (event === null) return null;
  const of = param("of");
  return of === null ? `${id} ${numberParam("ofx") ?? execution} ${event}` : `${of}  ${event}`;
}

function useTimelineKeys(
  on: {
    zoom: (factor: number) => void;
    pan: (by: number) => void;
    move: (by: number) => void;
    step: (by: Stepping, direction?: number) => void;
    shown: ReturnType<typeof useView>;
    selected: OperationRow | null;
    onOpen: () => void;
  },
  inputs: readonly unknown[],
): void {
  const group = "Timeline";
  useKeys(
    [
      { keys: "+", does: "Zoom in", act: () => on.zoom(0.6), group },
      { keys: "=", does: "Zoom in", act: () => on.zoom(0.6), group },
      { keys: "-", does: "Zoom out", act: () => on.zoom(1 / 0.6), group },
      { keys: "0", does: "Show the whole", act: () => on.shown.fit(), group },
      { keys: "f", does: "Follow now", act: () => on.shown.follow(!on.shown.isFollowing), group },
      { keys: "ArrowLeft", does: "Earlier", act: () => on.pan(-0.2), group },
      { keys: "ArrowRight", does: "Later", act: () => on.pan(0.2), group },
      { keys: "j", does: "Next operation", act: () => on.move(1), group },
      { keys: "k", does: "Previous operation", act: () => on.move(-1), group },
      { keys: "n", does: "Next failure", act: () => on.step("failed"), group },
      { keys: "N", does: "Previous failure", act: () => on.step("failed", -1), group },
      { keys: "Enter", does: "Unfold the child", act: on.onOpen, group },
    ],
    inputs,
  );
}

/** The width of the tracks in pixels. */
function useWidth(): [{ current: HTMLDivElement | null }, number] {
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const measure = () => {
      const track = box.current?.querySelector(".tl-head > .tl-track");
      if (track != null) setWidth(Math.round(track.getBoundingClientRect().width));
    };
    const observer = new ResizeObserver(measure);
    if (box.current !== null) observer.observe(box.current);
    measure();
    return () => observer.disconnect();
  }, [param("as")]);
  return [box, width];
}
