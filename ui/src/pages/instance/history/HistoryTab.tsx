// The history: events in their turns or grouped by operation, live at its end, searched on the server.
import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";

import type { InstanceDetails } from "../../../api/types.ts";
import { Button, countText } from "../../../design/Controls.tsx";
import { useKeys } from "../../../design/keys.ts";
import { Empty, Problem, Waiting } from "../../../design/Problem.tsx";
import { Virtual, type VirtualHandle } from "../../../design/Virtual.tsx";
import { change, param } from "../../../router/router.ts";
import type { EventRecord, TurnRecord } from "../data.ts";
import { numberParam, pastOf, type InstanceModel } from "../model.ts";
import { CompareEvents, EventSide } from "./EventSide.tsx";
import { EventRow, OperationLine, TurnRow } from "./HistoryRow.tsx";
import { Filters, filterFromUrl } from "./Filters.tsx";
import { nameOf, opens, sourceOf } from "./events.ts";
import { groupEvents, type Grouped } from "./operations.ts";
import { Search, isActive } from "./search.ts";
import { HistoryWindow, type Start } from "./window.ts";
import "./history.css";

const ROW_PX = 30;

type HistoryRow =
  | { is: "turn"; turn: TurnRecord }
  | { is: "event"; event: EventRecord; turn: number; atMs: number }
  | { is: "operation"; group: Grouped };

export default function HistoryTab({ model, details }: { model: InstanceModel; details: InstanceDetails }): JSX.Element {
  const execution = numberParam("execution") ?? details.execution;
  const past = pastOf(details.execution);
  return (
    <History
      key={`${execution} ${past?.turn ?? ""}`}
      model={model}
      details={details}
      execution={execution}
      until={past?.turn ?? null}
    />
  );
}

function startFromUrl(): Start {
  const [event, turn] = [numberParam("event"), numberParam("at")];
  return event !== null ? { event } : turn !== null ? { turn } : "end";
}

function History(props: {
  model: InstanceModel;
  details: InstanceDetails;
  execution: number;
  until: number | null;
}): JSX.Element {
  const { model, details, execution, until } = props;
  // Unknown as long as only the row was read; wide turns must not make the first page large.
  const perTurn = details.events === null ? 150 : details.events / Math.max(1, details.turns ?? 1);
  const history = useMemo(() => new HistoryWindow(model.id, execution, model.bound, until, perTurn), []);
  const filter = filterFromUrl();
  const search = useSearch(model, execution, until);
  const list = useRef<VirtualHandle>(null);
  const box = useRef<HTMLDivElement>(null);
  const selected = numberParam("event");
  const comparing = numberParam("vs");
  useEffect(() => {
    void history.open(startFromUrl());
    return model.listen({
      turn: (of, turn) => {
        if (of === execution) history.add(turn);
      },
      changed: (isGap) => {
        if (isGap && until === null && history.isOpen.peek()) void history.loadAfter();
      },
    });
  }, []);
  const turns = history.turns.value;
  const isGrouped = param("by") === "operations" && search === null;
  const matches = search?.matches.value;
  const rows = useMemo(() => rowsOf(turns, isGrouped, matches), [turns, isGrouped, matches]);
  const names = useMemo(() => namesOf(turns), [turns]);
  const isSelected = (row: HistoryRow) =>
    row.is === "event"
      ? row.event.id === selected
      : row.is === "operation" && (row.group.begun?.id === selected || row.group.ended?.id === selected);
  const here = selected === null ? -1 : rows.findIndex(isSelected);
  const shift = useKeptPlace(box, turns, isGrouped);
  useJumps(history, list, rows, isSelected, search === null);
  const select = (event: number | null) => change({ event, at: null }, { replace: true });
  const stepMatch = (by: number) => {
    if (rows.length === 0) return;
    const next = (here + by + rows.length) % rows.length;
    const row = rows[here < 0 && by > 0 ? 0 : next];
    if (row?.is !== "event") return;
    select(row.event.id);
    list.current?.scrollTo(rows.indexOf(row), "center");
  };
  const move = (by: number) => {
    for (let index = here < 0 ? (by > 0 ? 0 : rows.length - 1) : here + by; index >= 0 && index < rows.length; index += by) {
      const row = rows[index];
      const event =
        row?.is === "event" ? row.event.id : row?.is === "operation" ? (row.group.begun ?? row.group.ended)?.id : undefined;
      if (event === undefined) continue;
      select(event);
      list.current?.scrollTo(index, "auto");
      return;
    }
  };
  useKeys(
    [
      { keys: "j", does: "Next event", act: () => move(1), group: "History" },
      { keys: "k", does: "Previous event", act: () => move(-1), group: "History" },
      { keys: "n", does: "Next match", act: () => search !== null && stepMatch(1), group: "History" },
      { keys: "N", does: "Previous match", act: () => search !== null && stepMatch(-1), group: "History" },
    ],
    [rows, here],
  );
  const found = findEvent(turns, matches, selected);
  const jump = (event: number) => {
    change({ event, kinds: null, name: null, unit: null, failed: null, text: null });
    if (findEvent(turns, undefined, event) === null) void history.open({ event });
  };
  const problem = history.problem.value;
  const onRange = (first: number, last: number) => {
    history.isAtEnd = last >= rows.length - 1;
    if (search !== null) return;
    if (first <= 4 && history.hasBefore.peek() && problem?.where !== "before") void history.loadBefore();
    if (last >= rows.length - 5 && history.hasAfter.peek() && problem?.where !== "after") void history.loadAfter();
  };
  const place = { id: model.id, execution, bound: model.bound };
  return (
    <div class="ev">
      <Filters
        filter={filter}
        search={search}
        last={details.turns ?? 0}
        at={search === null || here < 0 ? null : here}
        comparing={comparing}
        onStep={stepMatch}
        onJump={jump}
      />
      {search?.problem.value != null && (
        <div class="one-problem">
          <Problem problem={search.problem.value} />
        </div>
      )}
      {problem !== null && problem.where !== "after" && (
        <div class="one-problem">
          <Problem
            problem={problem.problem}
            onRetry={() => void (problem.where === "all" ? history.open(startFromUrl()) : history.loadBefore())}
          />
        </div>
      )}
      <div class="tl-main">
        <div class="ev-list" ref={box} data-shift={shift}>
          {!history.isOpen.value && search === null ? (
            <div class="one-problem">{problem === null && <Waiting lines={6} />}</div>
          ) : rows.length === 0 && problem !== null ? null : rows.length === 0 ? (
            <Empty title={search === null ? "No events yet" : search.at.value === null ? "No event matches" : "Searching"}>
              <p>
                {search === null
                  ? "Its first turn records how it was started."
                  : "The whole history is searched: names, payloads and errors."}
              </p>
            </Empty>
          ) : (
            <Virtual
              class="ev-rows"
              role="table"
              label="History"
              count={rows.length}
              rowHeight={ROW_PX}
              handle={list}
              onRange={onRange}
              keyOf={(index) => keyOf(rows[index])}
            >
              {(index) => {
                const row = rows[index];
                if (row === undefined) return null;
                if (row.is === "turn") return <TurnRow turn={row.turn} index={index} />;
                if (row.is === "operation")
                  return <OperationLine group={row.group} index={index} isSelected={isSelected(row)} onSelect={select} />;
                return (
                  <EventRow
                    event={row.event}
                    turn={row.turn}
                    atMs={row.atMs}
                    index={index}
                    isSelected={row.event.id === selected}
                    isMatch={search !== null}
                    of={names.get(sourceOf(row.event) ?? -1) ?? ""}
                    onSelect={select}
                  />
                );
              }}
            </Virtual>
          )}
          {search === null && history.isOpen.value && (
            <EndBar
              history={history}
              last={model.lastTurn.value?.execution === execution ? model.lastTurn.value.number : 0}
              onEnd={() => list.current?.scrollTo(rows.length - 1, "end")}
            />
          )}
          {problem !== null && problem.where === "after" && (
            <div class="one-problem">
              <Problem problem={problem.problem} onRetry={() => void history.loadAfter()} />
            </div>
          )}
        </div>
        {found !== null && (
          <EventSide
            place={place}
            event={found.event}
            turn={found.turn}
            atMs={found.atMs}
            completion={completionOf(turns, found.event.id)}
            comparing={comparing}
            onCompare={(event) => change({ vs: event }, { replace: true })}
            onClose={() => select(null)}
          />
        )}
      </div>
      {comparing !== null && selected !== null && comparing !== selected && (
        <CompareEvents place={place} left={comparing} right={selected} onClose={() => change({ vs: null }, { replace: true })} />
      )}
    </div>
  );
}

/** A search runs as long as its filter stands. */
function useSearch(model: InstanceModel, execution: number, until: number | null): Search | null {
  const filter = filterFromUrl();
  const name = JSON.stringify(filter);
  const search = useMemo(() => (isActive(filter) ? new Search() : null), [name]);
  useEffect(() => {
    void search?.run(model.id, { ...model.bound, execution }, filter, until);
    return () => search?.stop();
  }, [search]);
  return search;
}

function rowsOf(turns: readonly TurnRecord[], isGrouped: boolean, matches: Search["matches"]["value"] | undefined): HistoryRow[] {
  if (matches !== undefined) return matches.map(({ event, turn, at_ms }) => ({ is: "event", event, turn, atMs: at_ms }));
  if (isGrouped) return groupEvents(turns).map((group) => ({ is: "operation", group }));
  return turns.flatMap((turn): HistoryRow[] => [
    { is: "turn", turn },
    ...turn.events.map((event): HistoryRow => ({ is: "event", event, turn: turn.number, atMs: turn.at_ms })),
  ]);
}

/** Names of operations by the event that began them, for the events that end them. */
function namesOf(turns: readonly TurnRecord[]): ReadonlyMap<number, string> {
  return new Map(
    turns.flatMap((turn) => turn.events.flatMap((event) => (opens(event) === null ? [] : [[event.id, nameOf(event)] as const]))),
  );
}

function keyOf(row: HistoryRow | undefined): string {
  if (row === undefined) return "";
  if (row.is === "turn") return `t${row.turn.number}`;
  return row.is === "event" ? `e${row.event.id}` : `o${row.group.begun?.id ?? ""}-${row.group.ended?.id ?? ""}`;
}

function findEvent(
  turns: readonly TurnRecord[],
  matches: Search["matches"]["value"] | undefined,
  id: number | null,
): { event: EventRecord; turn: number; atMs: number } | null {
  if (id === null) return null;
  for (const turn of turns) {
    const event = turn.events.find((each) => each.id === id);
    if (event !== undefined) return { event, turn: turn.number, atMs: turn.at_ms };
  }
  const match = matches?.find((each) => each.event.id === id);
  return match === undefined ? null : { event: match.event, turn: match.turn, atMs: match.at_ms };
}

function completionOf(turns: readonly TurnRecord[], id: number): number | null {
  for (const turn of turns) for (const event of turn.events) if (sourceOf(event) === id) return event.id;
  return null;
}

/** Keeps what is read in place while turns are put before it or left out there. Returns how far it moved, for tests. */
function useKeptPlace(box: { current: HTMLDivElement | null }, turns: readonly TurnRecord[], isGrouped: boolean): number {
  const before = useRef<readonly TurnRecord[]>(turns);
  const moved = useRef(0);
  useLayoutEffect(() => {
    const [old, now] = [before.current, turns];
    before.current = turns;
    const rows = box.current?.querySelector(".ev-rows");
    if (old === now || isGrouped || rows == null || old.length === 0) return;
    const anchor = now.find((turn) => old.some((each) => each.number === turn.number));
    if (anchor === undefined) return;
    const above = (list: readonly TurnRecord[]) => {
      let count = 0;
      for (const turn of list) {
        if (turn.number === anchor.number) break;
        count += turn.events.length + 1;
      }
      return count;
    };
    const by = (above(now) - above(old)) * ROW_PX;
    if (by === 0) return;
    rows.scrollTop += by;
    moved.current += by;
  }, [turns]);
  return moved.current;
}

/** Opens at the end or at the linked event, and follows links to other events. */
function useJumps(
  history: HistoryWindow,
  list: { current: VirtualHandle | null },
  rows: readonly HistoryRow[],
  isSelected: (row: HistoryRow) => boolean,
  isWhole: boolean,
): void {
  const jumped = useRef<string | null>(null);
  const isOpen = history.isOpen.value;
  const selected = numberParam("event");
  // Turns can be put before a row between the jump and the frame that shows it.
  const latest = useRef(rows);
  latest.current = rows;
  useEffect(() => {
    if (!isOpen || !isWhole || rows.length === 0) return;
    const turn = numberParam("at");
    const wanted = selected !== null ? `e${selected}` : turn !== null ? `t${turn}` : "end";
    if (jumped.current === wanted) return;
    const isFirst = jumped.current === null;
    const indexNow = () => {
      if (selected !== null) return latest.current.findIndex(isSelected);
      if (turn !== null) return latest.current.findIndex((row) => row.is === "turn" && row.turn.number === turn);
      return latest.current.length - 1;
    };
    const index = indexNow();
    if (index < 0 && selected !== null && !isFirst) {
      // A link to an event that is not loaded.
      jumped.current = wanted;
      void history.open({ event: selected }).then(() => (jumped.current = ""));
      return;
    }
    jumped.current = wanted;
    if (wanted === "end" && !isFirst) return;
    if (index >= 0)
      requestAnimationFrame(() =>
        list.current?.scrollTo(indexNow(), wanted === "end" ? "end" : isFirst || wanted.startsWith("t") ? "center" : "auto"),
      );
  }, [isOpen, rows, selected]);
}

function EndBar({ history, last, onEnd }: { history: HistoryWindow; last: number; onEnd: () => void }): JSX.Element | null {
  const loaded = history.turns.value.at(-1)?.number ?? 0;
  const newer = Math.max(0, last - loaded);
  if (!history.hasAfter.value && history.isLoading.value === null) return null;
  return (
    <div class="ev-end">
      {history.isLoading.value !== null ? (
        <span class="muted">Reading…</span>
      ) : (
        <Button kind="small" onClick={() => void history.open("end").then(() => requestAnimationFrame(onEnd))}>
          {newer > 0 ? `${countText(newer)} later turns; go` : "Go"} to the end
        </Button>
      )}
    </div>
  );
}
