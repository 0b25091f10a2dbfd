// Searches a whole history on the server, page by page, and counts what it finds.
import { batch, signal, type Signal } from "@preact/signals";

import { Problem } from "../../../api/problem.ts";
import { read, type EventRecord, type HistoryPage } from "../data.ts";

const MAX_MATCHES = 5_000;

export interface Filter {
  kinds: string;
  name: string;
  unit: string;
  failed: boolean;
  text: string;
}

export function isActive(filter: Filter): boolean {
  return filter.kinds !== "" || filter.name !== "" || filter.unit !== "" || filter.failed || filter.text !== "";
}

export interface Match {
  turn: number;
  at_ms: number;
  event: EventRecord;
}

export class Search {
  readonly matches: Signal<readonly Match[]> = signal([]);
  /** The turn up to which was searched; `null` when all of it was. */
  readonly at: Signal<number | null> = signal(0);
  readonly problem: Signal<Problem | null> = signal(null);
  private readonly controller = new AbortController();

  async run(id: string, query: object, filter: Filter, until: number | null): Promise<void> {
    const narrow = {
      kinds: filter.kinds === "" ? null : filter.kinds,
      name: filter.name === "" ? null : filter.name,
      unit: filter.unit === "" ? null : filter.unit,
      text: filter.text === "" ? null : filter.text,
      failed: filter.failed ? true : null,
    };
    let after = 0;
    try {
      for (;;) {
        const all = { ...query, ...narrow, after_turn: after, limit: 100, payload_bytes: 256 };
        const page = await read<HistoryPage>("instances/{id}/history", [id], all, this.controller.signal);
        const found = page.turns
          .filter((turn) => until === null || turn.number <= until)
          .flatMap((turn) => turn.events.map((event) => ({ turn: turn.number, at_ms: turn.at_ms, event })));
        const isDone = page.after === null || page.after <= after || (until !== null && page.after >= until);
        batch(() => {
          if (found.length > 0) this.matches.value = [...this.matches.peek(), ...found].slice(0, MAX_MATCHES);
          this.at.value = isDone || this.isFull ? null : page.after;
        });
        if (isDone || this.isFull) return;
        after = page.after ?? 0;
      }
    } catch (error) {
      if (!this.controller.signal.aborted) this.problem.value = Problem.from(error);
    }
  }

  get isFull(): boolean {
    return this.matches.peek().length >= MAX_MATCHES;
  }

  stop(): void {
    this.controller.abort();
  }
}
