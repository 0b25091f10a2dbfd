// The table of instances. Rows are drawn as they come into view; a click on a cell adds it to the filter.
import { signal } from "@preact/signals";
import type { JSX, RefObject } from "preact";
import { useEffect, useState } from "preact/hooks";

import { Icon } from "../../design/icons.tsx";
import { Virtual, type VirtualHandle } from "../../design/Virtual.tsx";
import { density, shownColumns, type Column } from "./columns.tsx";
import type { InstanceList, Row } from "./list.ts";
import type { Selection } from "./selection.ts";

/** Where the keyboard is: an index of the list, or -1. */
export const active = signal(-1);
/** Whether the pointer is over the rows: they must not move then. */
export const isPointed = signal(false);

interface Line {
  row: Row | null;
  depth: number;
}

/** Rows with the children that are unfolded under them. */
export interface Lines {
  length: number;
  at: (index: number) => Line;
  canUnfold: boolean;
  isUnfolded: (key: string) => boolean;
  unfold: (row: Row) => void;
}

export function Table(props: {
  list: InstanceList;
  lines: Lines;
  selection: Selection;
  handle: RefObject<VirtualHandle | null>;
  onFilter: (name: string, value: string) => void;
}): JSX.Element {
  const { list, lines, selection } = props;
  void list.drawn.value;
  const columns = shownColumns();
  const rowHeight = useRowHeight();
  const template = `2.25rem ${columns.map((column) => column.width).join(" ")} 0.5rem`;
  return (
    <div
      class={`instances-table ${density.value}`}
      style={{ "--columns": template }}
      onMouseEnter={() => (isPointed.value = true)}
      onMouseLeave={() => {
        isPointed.value = false;
        list.settle();
      }}
    >
      <Virtual
        class="instances-rows"
        role="table"
        label="Instances"
        count={lines.length}
        rowHeight={rowHeight}
        handle={props.handle}
        keyOf={(index) => lines.at(index).row?.key ?? index}
        onRange={(first, last) => list.show(first, last)}
        head={<Head columns={columns} list={list} selection={selection} />}
      >
        {(index) => {
          const { row, depth } = lines.at(index);
          return row === null ? (
            <div class="instances-row">
              <span />
              <span class="skeleton" />
            </div>
          ) : (
            <RowView key={row.key} row={row} depth={depth} index={index} columns={columns} {...props} />
          );
        }}
      </Virtual>
      {list.waiting.value > 0 && (
        <button
          type="button"
          class="button primary new-rows"
          onClick={() => {
            list.settle(true);
            props.handle.current?.scrollTo(0, "start");
          }}
        >
          {list.waiting.value.toLocaleString("en")} new
        </button>
      )}
    </div>
  );
}

function Head({ columns, list, selection }: { columns: Column[]; list: InstanceList; selection: Selection }): JSX.Element {
  const loaded = [...list.rows()];
  const chosen = loaded.length > 0 && loaded.every((row) => selection.has(row.key));
  return (
    <div class="instances-row head" role="row">
      <span class="pick" role="columnheader">
        <input
          type="checkbox"
          aria-label="Select all rows that are loaded"
          checked={chosen}
          onChange={(event) => selection.setAll(event.currentTarget.checked ? loaded : [])}
        />
      </span>
      {columns.map((column) => (
        <span key={column.id} role="columnheader" class="clip">
          {column.label}
        </span>
      ))}
    </div>
  );
}

function RowView(props: {
  row: Row;
  depth: number;
  index: number;
  columns: Column[];
  list: InstanceList;
  lines: Lines;
  selection: Selection;
  onFilter: (name: string, value: string) => void;
}): JSX.Element {
  const { row, list, selection, index, lines } = props;
  const isChosen = selection.has(row.key);
  const hasLeft = list.hasLeft(row.key);
  const kind = [
    "instances-row",
    isChosen ? "chosen" : "",
    hasLeft ? "left" : "",
    active.value === index ? "active" : "",
    list.isChanged(row.key) ? "changed" : "",
  ];
  return (
    <div
      class={kind.join(" ")}
      role="row"
      aria-rowindex={index + 2}
      aria-selected={isChosen}
      data-key={row.key}
      title={hasLeft ? "It no longer fits the filter." : undefined}
    >
      <span class="pick" role="cell">
        <input
          type="checkbox"
          aria-label={`Select ${row.id}`}
          checked={isChosen}
          onClick={(event) => selection.toggle(row, index, event.shiftKey, (at) => lines.at(at).row)}
        />
      </span>
      {props.columns.map((column) => (
        <span key={column.id} role="cell" class={`cell col-${column.id.startsWith("attr.") ? "attr" : column.id}`}>
          {column.id === "id" && (props.depth > 0 || lines.canUnfold) && (
            <span class="unfold" style={{ paddingInlineStart: `${Math.min(props.depth, 12)}rem` }}>
              <button
                type="button"
                class="button quiet small icon"
                aria-expanded={lines.isUnfolded(row.key)}
                aria-label={`Children of ${row.id}`}
                onClick={() => lines.unfold(row)}
              >
                <Icon name={lines.isUnfolded(row.key) ? "chevronDown" : "chevronRight"} size={12} />
              </button>
            </span>
          )}
          <Cell column={column} row={row} onFilter={props.onFilter} />
        </span>
      ))}
    </div>
  );
}

function Cell({
  column,
  row,
  onFilter,
}: {
  column: Column;
  row: Row;
  onFilter: (name: string, value: string) => void;
}): JSX.Element {
  const filter = column.filter?.(row) ?? null;
  const drawn = column.draw(row);
  if (filter === null || drawn === null) return <>{drawn}</>;
  return (
    <button
      type="button"
      class="cell-button"
      aria-description={`Filter: ${filter[2]}`}
      onClick={() => onFilter(filter[0], filter[1])}
    >
      {drawn}
    </button>
  );
}

/** In pixels, by the size of the text that the person chose. */
function useRowHeight(): number {
  const measure = () => {
    const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
    const isNarrow = matchMedia("(max-width: 48rem)").matches;
    return Math.round(rem * (isNarrow ? 4.25 : density.value === "compact" ? 1.75 : 2.25));
  };
  const [height, setHeight] = useState(measure);
  useEffect(() => {
    const update = () => setHeight(measure());
    update();
    addEventListener("resize", update);
    return () => removeEventListener("resize", update);
  }, [density.value]);
  return height;
}
