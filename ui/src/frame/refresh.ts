// Keeps parts of a page fresh that have no stream of their own: they are read again when the counts of the store or an operation
// changed, and with the clock for what no count tells. Not while the page is frozen or hidden.
import { effect } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

import type { Loaded } from "../api/load.ts";
import { connection } from "../api/stream/stream.ts";
import { frozenSince, operations, stats } from "./state.ts";

/** The value, or while the page is frozen the value that it had then. */
export function useFrozen<T>(value: T): T {
  const kept = useRef(value);
  if (frozenSince.value === null) kept.current = value;
  return kept.current;
}

interface Pace {
  /** At most so often after changes. */
  afterMs?: number;
  /** At least so often. */
  everyMs?: number;
}

export function useRefresh(parts: readonly Loaded<unknown>[], { afterMs = 1_500, everyMs = 30_000 }: Pace = {}): void {
  useEffect(() => {
    let lastAt = Date.now();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const canRead = () =>
      document.visibilityState === "visible" && frozenSince.peek() === null && connection.peek().is !== "away";
    const readAll = () => {
      timer = undefined;
      if (!canRead()) return;
      lastAt = Date.now();
      for (const part of parts) if (!part.isLoading.peek()) void part.reload();
    };
    const soon = () => (timer ??= setTimeout(readAll, Math.max(0, lastAt + afterMs - Date.now())));
    let isFirst = true;
    const stop = effect(() => {
      void [stats.value, operations.value, frozenSince.value, connection.value.is];
      if (!isFirst) soon();
      isFirst = false;
    });
    const clock = setInterval(readAll, everyMs);
    document.addEventListener("visibilitychange", soon);
    return () => {
      stop();
      clearInterval(clock);
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", soon);
    };
  }, [...parts, afterMs, everyMs]);
}
