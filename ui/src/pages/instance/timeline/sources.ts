// The timelines that a page shows: of the execution, of those before it, and of children that were unfolded. Each is read for
// itself when it is first needed, and again when it changes.
import { computed, signal, type ReadonlySignal, type Signal } from "@preact/signals";

import { Loaded } from "../../../api/load.ts";
import { follow } from "../../../api/stream/stream.ts";
import { read, type Operation, type TimelineData, type WaitsData } from "../data.ts";
import { gathered, type Past } from "../model.ts";
import { asOf } from "./bars.ts";

/** How many operations are read at first. More are read as one goes back. */
const LIMIT = 500;
const EARLIER = 1_000;

export class Source {
  readonly id: string;
  readonly execution: number | null;
  readonly loaded: Loaded<TimelineData>;
  /** Operations before those that were read at first. */
  readonly earlier: Signal<{ operations: readonly Operation[]; others: number } | null> = signal(null);
  readonly isLoadingEarlier: Signal<boolean> = signal(false);
  /** Of a long timeline, the operations of the part that is zoomed to. */
  readonly zoomed: Signal<TimelineData | null> = signal(null);
  readonly operations: ReadonlySignal<readonly Operation[]>;
  private zoomedTo: { from_ms: number; to_ms: number } | null = null;
  private zooming: AbortController | null = null;
  readonly reload: () => void;
  private readonly bound: object;

  constructor(id: string, execution: number | null, bound: object, past: Past | null, onRead?: (data: TimelineData) => void) {
    this.id = id;
    this.execution = execution;
    this.bound = bound;
    this.loaded = new Loaded(async (abort) => {
      const data = past === null ? await this.read({ limit: LIMIT }, abort) : await this.readPast(past, abort);
      onRead?.(data);
      if (this.zoomedTo !== null) void this.zoomTo(this.zoomedTo);
      return data;
    });
    this.reload = gathered(500, () => void this.loaded.reload());
    this.operations = computed(() => {
      if (this.zoomed.value !== null) return this.zoomed.value.operations;
      const [now, before] = [this.loaded.value.value?.operations ?? [], this.earlier.value?.operations];
      if (before === undefined) return now;
      const first = now[0]?.event ?? Infinity;
      return [...before.filter((operation) => operation.event < first), ...now];
    });
  }

  private query(): Record<string, number> {
    return { ...this.bound, ...(this.execution === null ? {} : { execution: this.execution }) } as Record<string, number>;
  }

  private read(query: object, abort: AbortSignal): Promise<TimelineData> {
    return read<TimelineData>("instances/{id}/timeline", [this.id], { ...this.query(), ...query }, abort);
  }

  private async readPast(past: Past, abort: AbortSignal): Promise<TimelineData> {
    const then = await read<WaitsData>("instances/{id}/waits", [this.id], { ...this.query(), execution: past.execution, turn: past.turn }, abort);
    const data = await this.read({ limit: LIMIT, to_ms: then.at_ms + 1 }, abort);
    const open = new Set(then.waits.flatMap((wait) => (wait.event === undefined ? [] : [wait.event])));
    return asOf(data, then.at_ms, past.turn, open);
  }

  /** Reads the operations of a part, if not all of them were read. `null` goes back to the last ones. */
  async zoomTo(part: { from_ms: number; to_ms: number } | null): Promise<void> {
    const isLong = (this.loaded.value.peek()?.others ?? 0) > 0;
    this.zooming?.abort();
    this.zoomedTo = isLong ? part : null;
    if (this.zoomedTo === null) {
      this.zoomed.value = null;
      return;
    }
    const controller = new AbortController();
    this.zooming = controller;
    try {
      this.zoomed.value = await this.read({ limit: LIMIT, ...this.zoomedTo }, controller.signal);
    } catch {
      // What was read before stays; the next zoom or turn reads again.
    }
  }

  /** How many operations lie before those that were read. */
  get others(): number {
    if (this.zoomed.value !== null) return this.zoomed.value.others;
    return this.earlier.value?.others ?? this.loaded.value.value?.others ?? 0;
  }

  async loadEarlier(): Promise<void> {
    const first = this.operations.peek()[0];
    if (first === undefined || this.isLoadingEarlier.peek() || this.zoomed.peek() !== null) return;
    this.isLoadingEarlier.value = true;
    try {
      // Operations of one turn have the same time, so the page before can begin with some that are known.
      const page = await this.read({ limit: EARLIER, to_ms: first.scheduled_ms + 1 }, new AbortController().signal);
      const known = new Set(this.operations.peek().map((operation) => operation.event));
      const added = page.operations.filter((operation) => !known.has(operation.event));
      const before = added.length > 0 ? added : (await this.read({ limit: EARLIER, to_ms: first.scheduled_ms }, new AbortController().signal)).operations;
      const old = this.earlier.peek()?.operations ?? [];
      this.earlier.value = { operations: [...before, ...old].sort((a, b) => a.event - b.event), others: Math.max(0, this.others - before.length) };
    } finally {
      this.isLoadingEarlier.value = false;
    }
  }

  /** Reads, and again when the instance changes. For children: the page's own stream tells of the instance itself. */
  followed(): () => void {
    void this.loaded.reload();
    const isOver = () => {
      const data = this.loaded.value.peek();
      return data !== undefined && data.operations.every((operation) => operation.outcome !== "open");
    };
    const leave = follow({ kind: "instance", id: this.id }, {
      message: () => this.reload(),
      open: (gap) => {
        if (gap && !isOver()) this.reload();
      },
    });
    return () => {
      leave();
      this.loaded.stop();
    };
  }
}
