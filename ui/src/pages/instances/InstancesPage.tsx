// The list of instances: views, filter, table, selection.
import { useComputed } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";

import { get } from "../../api/client.ts";
import { useLoad } from "../../api/load.ts";
import { Button, Segments, countText } from "../../design/Controls.tsx";
import { useCommands, useKeys } from "../../design/keys.ts";
import { Problem, isToldAbove } from "../../design/Problem.tsx";
import { announce } from "../../design/Toast.tsx";
import type { VirtualHandle } from "../../design/Virtual.tsx";
import { Page } from "../../frame/Page.tsx";
import { frozenSince, stats, whyReadOnly } from "../../frame/state.ts";
import { change, choice, go, param, place } from "../../router/router.ts";
import { Children } from "./children.ts";
import { ColumnsMenu } from "./ColumnsMenu.tsx";
import { FilterBar } from "./FilterBar.tsx";
import { adding, filterOf, queryOf, without, type Filter } from "./filter.ts";
import { InstanceList } from "./list.ts";
import { EmptyFilter, EmptyStore } from "./Nothing.tsx";
import { Selection } from "./selection.ts";
import { SelectionBar } from "./SelectionBar.tsx";
import { Start } from "./Start.tsx";
import { Table, active, isPointed } from "./Table.tsx";
import { Views } from "./Views.tsx";
import "./instances.css";

function attributesOf(list: InstanceList): string[] {
  const names = new Set<string>();
  for (const row of list.rows()) for (const name of Object.keys(row.attributes)) names.add(name);
  return [...names].sort().slice(0, 40);
}

function show(filter: Filter, order: string): void {
  go(["instances"], { ...Object.fromEntries(filter), order: order === "newest" ? null : order });
}

export default function InstancesPage(): JSX.Element {
  const filter = useComputed(() => filterOf(place.value));
  const order = choice("order", ["newest", "oldest"]);
  const query = queryOf(filter.value, order);
  const selection = useMemo(() => new Selection(), [query]);
  const table = useRef<VirtualHandle>(null);
  const list = useMemo(() => {
    const mayMove = () => !isPointed.peek() && selection.isEmpty && frozenSince.peek() === null && isAtTop();
    return new InstanceList(query, order, mayMove);
  }, [query]);
  const children = useMemo(() => new Children(), [query]);
  useEffect(() => {
    active.value = -1;
    list.begin();
    return () => list.stop();
  }, [list]);
  useEffect(() => {
    if (list.waiting.value > 0) announce(`${list.waiting.value} new`);
  }, [list, list.waiting.value]);
  void list.drawn.value;
  const count = useCount(query);
  const lines = children.lines(list, filter.value.get("root") === "true");
  const apply = (next: Filter) => show(next, order);
  useListKeys(list, lines.length, (at) => lines.at(at).row, selection, table);
  const isEmpty = list.length === 0 && !list.isLoading.value && list.problem.value === null && list.partial === null;
  const isBare = filter.value.size === 0;
  return (
    <Page
      title="Instances"
      isFull
      beside={count === undefined ? null : <span class="count big">{countText(count)}</span>}
      actions={
        <>
          <Segments
            label="Order"
            value={order}
            onChange={(next) => show(filter.value, next)}
            options={[
              ["newest", "Newest"],
              ["oldest", "Oldest"],
            ]}
          />
          <Button
            kind="quiet"
            pressed={filter.value.has("root")}
            onClick={() => apply(filter.value.has("root") ? without(filter.value, "root") : adding(filter.value, "root", "true"))}
          >
            Fold children
          </Button>
          <ColumnsMenu attributes={() => attributesOf(list)} />
          <Button kind="primary" whyNot={whyReadOnly.value} onClick={() => change({ start: "new" })}>
            Start…
          </Button>
        </>
      }
    >
      <Views current={query} count={count} />
      <FilterBar filter={filter.value} attributes={() => attributesOf(list)} onChange={apply} />
      {list.problem.value !== null && !(list.length > 0 && isToldAbove(list.problem.value)) && (
        <div class="pad">
          <Problem problem={list.problem.value} onRetry={() => void list.again()} />
        </div>
      )}
      {isEmpty ? (
        isBare ? (
          <EmptyStore />
        ) : (
          <EmptyFilter filter={filter.value} onChange={apply} />
        )
      ) : (
        <Table
          list={list}
          lines={lines}
          selection={selection}
          handle={table}
          onFilter={(name, value) => apply(adding(filter.value, name, value))}
        />
      )}
      <Partial list={list} />
      <SelectionBar selection={selection} filter={queryOf(filter.value, "newest")} count={count} />
      {param("start") !== null && <Start like={param("like")} onClose={() => change({ start: null, like: null })} />}
    </Page>
  );
}

function isAtTop(): boolean {
  return (document.querySelector(".instances-rows")?.scrollTop ?? 0) < 8;
}

/** How many there are. Read when the filter changes, and when the store's counts do, at most every three seconds. */
function useCount(query: string): { rows: number; more: boolean } | undefined {
  const counted = useLoad(
    (signal) => {
      const parameters = Object.fromEntries(new URLSearchParams(query));
      delete parameters["order"];
      return get("count", { query: parameters, signal });
    },
    [query],
  );
  const tick = stats.value;
  useEffect(() => {
    if (counted.isLoading.peek() || counted.at.peek() === 0 || frozenSince.peek() !== null) return;
    const timer = setTimeout(() => void counted.reload(), Math.max(0, counted.at.peek() + 3_000 - Date.now()));
    return () => clearTimeout(timer);
  }, [tick, counted]);
  return counted.value.value;
}

/** How far a scan has looked. */
function Partial({ list }: { list: InstanceList }): JSX.Element | null {
  const partial = list.partial;
  if (partial === null) return null;
  return (
    <div class="partial">
      <span>
        Looked at {partial.scanned.toLocaleString("en")} instances so far, and found {list.length.toLocaleString("en")}.
      </span>
      <Button kind="small" onClick={() => void list.more()}>
        Look further
      </Button>
    </div>
  );
}

function useListKeys(
  list: InstanceList,
  length: number,
  rowAt: (index: number) => ReturnType<InstanceList["row"]>,
  selection: Selection,
  table: { current: VirtualHandle | null },
): void {
  const move = (to: number) => {
    active.value = Math.max(0, Math.min(length - 1, to));
    table.current?.scrollTo(active.value);
    const key = rowAt(active.value)?.key;
    requestAnimationFrame(() =>
      document.querySelector<HTMLElement>(`[data-key="${key ?? ""}"] a.id`)?.focus({ preventScroll: true }),
    );
  };
  const open = () => {
    const row = rowAt(active.value);
    if (row !== null) go(["instances", row.id]);
  };
  const select = () => {
    const row = rowAt(active.value);
    if (row !== null) selection.toggle(row, active.value, false, rowAt);
  };
  const actions = () => {
    if (selection.isEmpty) select();
    requestAnimationFrame(() => document.querySelector<HTMLElement>(".all-actions")?.click());
  };
  useKeys(
    [
      { keys: "/", does: "Filter", act: () => document.getElementById("filter-input")?.focus() },
      { keys: "j", does: "Next row", act: () => move(active.value + 1) },
      { keys: "k", does: "Previous row", act: () => move(active.value - 1) },
      { keys: "Enter", does: "Open the row", act: open },
      { keys: "x", does: "Select the row", act: select },
      { keys: ".", does: "Actions for the row or the selection", act: actions },
      { keys: "Escape", does: "Clear the selection", act: () => selection.clear() },
    ],
    [list, length, selection],
  );
  useCommands(
    [{ name: "Start an instance", run: () => go(["instances"], { start: "new" }), whyNot: whyReadOnly.value }],
    [whyReadOnly.value],
  );
}
