// A long list of which only the rows in view exist.
import { Virtualizer, elementScroll, observeElementOffset, observeElementRect } from "@tanstack/virtual-core";
import type { ComponentChildren, JSX, RefObject } from "preact";
import { useEffect, useLayoutEffect, useMemo, useReducer, useRef } from "preact/hooks";

export interface VirtualHandle {
  scrollTo(index: number, align?: "start" | "center" | "end" | "auto"): void;
}

interface Props {
  count: number;
  /** The height of a row in pixels. */
  rowHeight: number;
  /** A name for each row that stays when rows are put before it. */
  keyOf: (index: number) => string | number;
  children: (index: number) => ComponentChildren;
  /** Which rows are in view, for loading on. */
  onRange?: (first: number, last: number) => void;
  handle?: RefObject<VirtualHandle | null>;
  class?: string;
  role?: "table" | "grid" | "treegrid" | "list";
  label?: string;
  /** Above the rows, scrolling with them sideways and staying at the top. */
  head?: ComponentChildren;
}

export function Virtual(props: Props): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const [, draw] = useReducer<number, void>((count) => count + 1, 0);
  const options = {
    count: props.count,
    getScrollElement: () => box.current,
    estimateSize: () => props.rowHeight,
    // Not `keyOf`: a new function would make it measure every row again. Rows have one height, so places need no names.
    overscan: 4,
    scrollToFn: elementScroll,
    observeElementRect,
    observeElementOffset,
    onChange: () => draw(),
  };
  const virtual = useMemo(() => new Virtualizer<HTMLDivElement, HTMLDivElement>(options), []);
  virtual.setOptions(options);
  useEffect(() => virtual._didMount(), [virtual]);
  useLayoutEffect(() => virtual._willUpdate());
  useLayoutEffect(() => virtual.measure(), [virtual, props.rowHeight]);
  if (props.handle !== undefined) {
    props.handle.current = { scrollTo: (index, align = "auto") => virtual.scrollToIndex(index, { align }) };
  }
  const items = virtual.getVirtualItems();
  const [first, last] = [items[0]?.index ?? 0, items[items.length - 1]?.index ?? -1];
  useEffect(() => props.onRange?.(first, last), [first, last, props.count]);
  return (
    <div
      ref={box}
      class={`virtual ${props.class ?? ""}`}
      role={props.role}
      aria-label={props.label}
      tabIndex={0}
      {...(props.role !== undefined && props.role !== "list" ? { "aria-rowcount": props.count + 1 } : {})}
    >
      {props.head}
      <div
        class="inside"
        role={props.role === undefined ? undefined : "rowgroup"}
        style={{ height: `${virtual.getTotalSize()}px` }}
      >
        {items.map((item) => (
          <div
            key={props.keyOf(item.index)}
            role="presentation"
            style={{ height: `${item.size}px`, transform: `translateY(${item.start}px)` }}
          >
            {props.children(item.index)}
          </div>
        ))}
      </div>
    </div>
  );
}
