// Rows hold still while somebody points at, focuses or reads them: values change in place, new rows wait under "2 new", and rows
// that are gone stay where they were until they are let go.
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import "./fold.css";
import { announce } from "./Toast.tsx";

export interface Held<T> {
  rows: readonly T[];
  /** How many rows wait to be shown. */
  waiting: number;
  /** Whether a row is shown although it is no longer there. */
  isGone: (row: T) => boolean;
  /** Shows them. */
  release: () => void;
  /** For the element around the rows. */
  on: {
    onPointerEnter: () => void;
    onPointerLeave: () => void;
    onFocusIn: () => void;
    onFocusOut: (event: FocusEvent) => void;
  };
}

/** `isRead` holds the rows as well: something in them is open. */
export function useHeld<T>(rows: readonly T[], keyOf: (row: T) => string, isRead = false): Held<T> {
  const [isPointed, setPointed] = useState(false);
  const [isFocused, setFocused] = useState(false);
  const [, draw] = useState(0);
  const shown = useRef<readonly T[]>([]);
  const fresh = new Map(rows.map((row) => [keyOf(row), row]));
  if ((isPointed || isFocused || isRead) && shown.current.length > 0) {
    shown.current = shown.current.map((row) => fresh.get(keyOf(row)) ?? row);
  } else {
    shown.current = rows;
  }
  const known = new Set(shown.current.map(keyOf));
  return {
    rows: shown.current,
    waiting: rows.filter((row) => !known.has(keyOf(row))).length,
    isGone: (row) => !fresh.has(keyOf(row)),
    release: () => {
      shown.current = rows;
      draw((count) => count + 1);
    },
    on: {
      onPointerEnter: () => setPointed(true),
      onPointerLeave: () => setPointed(false),
      onFocusIn: () => setFocused(true),
      onFocusOut: (event) => {
        const inside = event.currentTarget as Element;
        if (!inside.contains(event.relatedTarget as globalThis.Node | null)) setFocused(false);
      },
    },
  };
}

/** Around the rows. What waits is offered on their upper edge, without moving them. */
export function Holding(props: {
  of: Pick<Held<unknown>, "waiting" | "release" | "on">;
  one?: string;
  many?: string;
  children: ComponentChildren;
}): JSX.Element {
  const { waiting, release, on } = props.of;
  return (
    <div class="holding" {...on}>
      {waiting > 0 && (
        <button type="button" class="chip blue holding-new" onClick={release}>
          {waiting.toLocaleString("en")} {waiting === 1 ? (props.one ?? "new") : (props.many ?? "new")}
        </button>
      )}
      {props.children}
    </div>
  );
}

/** Tells screen readers a text when it has changed; not when the page opens. */
export function useAnnounced(text: string): void {
  const before = useRef(text);
  useEffect(() => {
    if (before.current !== text) announce(text);
    before.current = text;
  }, [text]);
}

/** A text that is marked for a second when it changes. */
export function Changing({ text, children }: { text: string; children?: ComponentChildren }): JSX.Element {
  const before = useRef(text);
  const hasChanged = useRef(false);
  if (before.current !== text) {
    hasChanged.current = true;
    before.current = text;
  }
  return (
    <span key={text} class={hasChanged.current ? "changed" : undefined}>
      {children ?? text}
    </span>
  );
}
