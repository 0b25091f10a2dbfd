// One instance as the page shows it: what was read, what the stream tells, and what became of it.
//
// The page belongs to the instance that it read first. Every request carries that instance's key, so that an id that another
// instance has by now is never acted on by mistake; the page says so instead.
import { computed, effect, signal, type ReadonlySignal, type Signal } from "@preact/signals";

import { get } from "../../api/client.ts";
import { Loaded } from "../../api/load.ts";
import { Problem } from "../../api/problem.ts";
import { follow } from "../../api/stream/stream.ts";
import type { Instance, InstanceDetails } from "../../api/types.ts";
import { WORDS, standingOf } from "../../design/Status.tsx";
import { serverTime } from "../../design/time.tsx";
import { announce } from "../../design/Toast.tsx";
import { frozenSince } from "../../frame/state.ts";
import { param } from "../../router/router.ts";
import type { TurnRecord } from "./data.ts";

/** Reads at most this often while turns arrive. */
const GATHERED_MS = 400;

/** Larger payloads are read when they are looked at. */
const PAYLOAD_BYTES = 64 << 10;

export interface Listener {
  /** A turn that the page has not seen. */
  turn?(execution: number, turn: TurnRecord): void;
  /** Something changed that no turn tells, or changes may have been missed: read again. */
  changed?(isGap: boolean): void;
}

/** What became of the instance, if it is no longer there. */
export type Fate = { is: "deleted" } | { is: "replaced" };

/** Something that was done on this page: when it was durable, and what followed. */
export interface Deed {
  text: string;
  atMs: number;
  effect: string | null;
}

/** What is not known before the details are read. */
const UNREAD = {
  turns: null,
  events: null,
  bytes: null,
  input: null,
  output: null,
  error: null,
  reason: null,
  waits_for: [],
  more_waits: 0,
  untaken_events: {},
  deadline_ms: null,
  cancel: null,
  trace: null,
} satisfies Omit<InstanceDetails, keyof Instance>;

export class InstanceModel {
  readonly id: string;
  readonly details: Loaded<InstanceDetails>;
  /** Whether only the row was read so far. */
  readonly isPartial: ReadonlySignal<boolean> = computed(() => this.details.value.value?.waits_for === UNREAD.waits_for);
  readonly fate: Signal<Fate | null> = signal(null);
  readonly deed: Signal<Deed | null> = signal(null);
  /** The newest turn that is known, for parts that follow turns. */
  readonly lastTurn: Signal<{ execution: number; number: number } | null> = signal(null);
  private key: string | null;
  private readonly listeners = new Set<Listener>();
  private isBehind = false;
  private readonly refresh: () => void;

  constructor(id: string, key: string | null) {
    this.id = id;
    this.key = key;
    this.details = new Loaded((abort) => this.readDetails(abort));
    this.refresh = gathered(GATHERED_MS, () => void this.details.reload());
  }

  /** What binds a request to the instance that is shown. */
  get bound(): { key?: string } {
    return this.key === null ? {} : { key: this.key };
  }

  get isOver(): boolean {
    const status = this.details.value.value?.status;
    return this.fate.value !== null || (status !== undefined && status !== "running" && status !== "pending");
  }

  listen(listener: Listener): () => void {
    this.listeners.add(listener);
    return () => void this.listeners.delete(listener);
  }

  /** Begins to read and to follow. Returns what ends it. */
  start(): () => void {
    void this.details.reload();
    const leave = follow(
      { kind: "instance", id: this.id },
      { message: (event, data) => this.received(event, data), open: (gap) => gap && this.caughtUp() },
    );
    const thaw = effect(() => {
      if (frozenSince.value === null && this.isBehind) this.caughtUp();
    });
    return () => {
      leave();
      thaw();
      this.details.stop();
    };
  }

  /** Notes what was done, for the line under the sentence. */
  done(text: string): void {
    this.deed.value = { text, atMs: serverTime(), effect: null };
    announce(text);
    this.refresh();
  }

  /** Tells all parts to read again. */
  caughtUp(): void {
    this.isBehind = false;
    this.refresh();
    for (const listener of this.listeners) listener.changed?.(true);
  }

  /** The row alone is read at once, however long the history is; the page opens with it. */
  private async readRow(): Promise<void> {
    try {
      const { rows } = await get("instances", { query: { id: this.id, limit: 1 } });
      const row = rows[0];
      if (row === undefined || this.details.value.peek() !== undefined || (this.key !== null && this.key !== row.key)) return;
      this.key = row.key;
      const { waits_for: _, more_waits: __, ...instance } = row;
      this.details.value.value = { ...instance, ...UNREAD };
    } catch {
      // The details tell what is wrong.
    }
  }

  private async readDetails(abort: AbortSignal): Promise<InstanceDetails> {
    if (this.details.value.peek() === undefined) void this.readRow();
    try {
      const query = { ...this.bound, payload_bytes: PAYLOAD_BYTES };
      const details = await get("instances/{id}", { path: [this.id], query, signal: abort });
      this.key ??= details.key;
      const turns = details.turns ?? 0;
      const known = this.lastTurn.peek();
      if (
        known === null ||
        details.execution > known.execution ||
        (details.execution === known.execution && turns > known.number)
      ) {
        this.lastTurn.value = { execution: details.execution, number: turns };
      }
      return details;
    } catch (error) {
      if (error instanceof Problem && this.key !== null) {
        if (error.code === "PER-0812") this.fate.value = { is: "replaced" };
        if (error.code === "PER-0605" && this.details.value.peek() !== undefined) this.fate.value = { is: "deleted" };
      }
      throw error;
    }
  }

  private received(event: string, data: unknown): void {
    if (event === "gone") {
      if (this.key !== null && this.fate.peek() === null) this.ended({ is: "deleted" }, "This instance was deleted");
      return;
    }
    const about = data as { key?: string };
    if (this.key !== null && about.key !== undefined && about.key !== this.key) {
      if (this.fate.peek()?.is !== "replaced") this.ended({ is: "replaced" }, "Another instance has this id now");
      return;
    }
    if (this.fate.peek() !== null) return;
    if (frozenSince.peek() !== null) {
      this.isBehind = true;
      return;
    }
    if (event === "turn") {
      const { execution, turn } = data as { execution: number; turn: TurnRecord };
      this.noteTurn(execution, turn);
    } else if (event === "instance") {
      this.noteRow(data as Instance);
    } else {
      for (const listener of this.listeners) listener.changed?.(true);
    }
    this.refresh();
  }

  private noteTurn(execution: number, turn: TurnRecord): void {
    const known = this.lastTurn.peek();
    if (known === null || execution > known.execution || (execution === known.execution && turn.number > known.number)) {
      this.lastTurn.value = { execution, number: turn.number };
    }
    this.followed(`turn ${turn.number} was taken`);
    for (const listener of this.listeners) listener.turn?.(execution, turn);
  }

  private noteRow(row: Instance): void {
    const details = this.details.value.peek();
    if (details !== undefined) {
      const [before, after] = [WORDS[standingOf(details)], WORDS[standingOf(row)]];
      if (before !== after) {
        announce(`Now ${after.toLowerCase()}`);
        this.followed(`now ${after.toLowerCase()}`);
      }
      // The row is newer than the rest, which is on its way.
      this.details.value.value = { ...details, ...row };
    }
    for (const listener of this.listeners) listener.changed?.(false);
  }

  private followed(effectText: string): void {
    const deed = this.deed.peek();
    if (deed !== null && deed.effect === null) this.deed.value = { ...deed, effect: effectText };
  }

  private ended(fate: Fate, text: string): void {
    this.fate.value = fate;
    announce(text);
  }
}

/** Runs at once if it has not run for a while, and otherwise when that while is over. */
export function gathered(ms: number, act: () => void): () => void {
  let lastAt = 0;
  let timer: ReturnType<typeof setTimeout> | undefined;
  return () => {
    if (timer !== undefined) return;
    timer = setTimeout(
      () => {
        timer = undefined;
        lastAt = Date.now();
        act();
      },
      Math.max(0, lastAt + ms - Date.now()),
    );
  };
}

/** The turn of the past that is shown, by the URL. */
export interface Past {
  execution: number;
  turn: number;
}

export function numberParam(name: string): number | null {
  const text = param(name);
  return text !== null && /^\d{1,15}$/.test(text) ? Number(text) : null;
}

export function pastOf(current: number): Past | null {
  const turn = numberParam("turn");
  return turn === null ? null : { execution: numberParam("execution") ?? current, turn };
}
