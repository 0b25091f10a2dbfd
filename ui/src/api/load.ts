// One part of a page that is read from the server. Each part loads, fails and is tried again for itself; what was read
// stays while it is read again, so that nothing flickers.
import { batch, signal, type Signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";

import { Problem } from "./problem.ts";

export class Loaded<T> {
  readonly value: Signal<T | undefined> = signal(undefined);
  readonly problem: Signal<Problem | null> = signal(null);
  readonly isLoading: Signal<boolean> = signal(false);
  /** When the value was read, by this machine's clock. */
  readonly at: Signal<number> = signal(0);
  private read: (signal: AbortSignal) => Promise<T>;
  private running: AbortController | null = null;

  constructor(read: (signal: AbortSignal) => Promise<T>) {
    this.read = read;
  }

  /** Reads it again. A newer call replaces one that runs. */
  async reload(): Promise<void> {
    this.running?.abort();
    const controller = new AbortController();
    this.running = controller;
    this.isLoading.value = true;
    try {
      const value = await this.read(controller.signal);
      if (this.running !== controller) return;
      batch(() => {
        this.value.value = value;
        this.problem.value = null;
        this.at.value = Date.now();
      });
    } catch (error) {
      if (this.running !== controller || controller.signal.aborted) return;
      this.problem.value = Problem.from(error);
    } finally {
      if (this.running === controller) {
        this.running = null;
        this.isLoading.value = false;
      }
    }
  }

  stop(): void {
    this.running?.abort();
    this.running = null;
  }
}

/** Reads when the component appears and whenever `inputs` change. */
export function useLoad<T>(read: (signal: AbortSignal) => Promise<T>, inputs: readonly unknown[]): Loaded<T> {
  const loaded = useMemo(() => new Loaded(read), inputs);
  useEffect(() => {
    void loaded.reload();
    return () => loaded.stop();
  }, [loaded]);
  return loaded;
}
