// The part of a history that is loaded: turns one after another, read on at both ends as one scrolls, and live at its end.
import { batch, signal, type Signal } from "@preact/signals";

import { Problem } from "../../../api/problem.ts";
import { read, type HistoryPage, type TurnRecord } from "../data.ts";

/** About how many events are read at a time, and kept at most. */
const PAGE_EVENTS = 600;
const MAX_EVENTS = 6_000;
const MAX_TURNS = 200;
/** Larger payloads are read when they are looked at. */
const PAYLOAD_BYTES = 384;

export type Start = { event: number } | { turn: number } | "end";

export class HistoryWindow {
  readonly turns: Signal<readonly TurnRecord[]> = signal([]);
  readonly isOpen: Signal<boolean> = signal(false);
  readonly isLoading: Signal<"before" | "after" | "all" | null> = signal(null);
  readonly problem: Signal<{ where: "before" | "after" | "all"; problem: Problem } | null> = signal(null);
  /** Whether there are turns before and after those that are loaded. */
  readonly hasBefore: Signal<boolean> = signal(false);
  readonly hasAfter: Signal<boolean> = signal(false);
  /** How many events stand before the first that was shown, for keeping the place while some are put before it. */
  readonly id: string;
  readonly execution: number;
  private readonly bound: object;
  /** The last turn that may be shown: of the past. */
  private readonly until: number | null;
  /** How many events a turn has, as far as it is known: of the whole execution, and of the turns that were read last. */
  private readonly overall: number;
  private perTurn: number;
  private waiting: TurnRecord[] = [];
  private frame = 0;
  /** Whether new turns are put at the end; they are not while somebody reads further up in a long list. */
  isAtEnd = true;

  constructor(id: string, execution: number, bound: object, until: number | null, perTurn: number) {
    this.id = id;
    this.execution = execution;
    this.bound = bound;
    this.until = until;
    this.overall = Math.max(1, perTurn);
    this.perTurn = this.overall;
  }

  private get limit(): number {
    // A few short turns say nothing about those beside them.
    return Math.max(1, Math.min(MAX_TURNS, Math.floor(PAGE_EVENTS / Math.max(this.perTurn, this.overall))));
  }

  private page(query: object): Promise<HistoryPage> {
    const all = { ...this.bound, execution: this.execution, payload_bytes: PAYLOAD_BYTES, limit: this.limit, ...query };
    return read<HistoryPage>("instances/{id}/history", [this.id], all);
  }

  /** Reads around a place. A history that cannot be read at its end is read from its beginning, as far as it goes. */
  async open(at: Start): Promise<void> {
    this.isLoading.value = "all";
    this.problem.value = null;
    try {
      this.show(await this.firstPage(at));
    } catch (error) {
      const problem = Problem.from(error);
      if (problem.status >= 500 && !problem.retryable) await this.openDamaged(problem);
      else this.problem.value = { where: "all", problem };
    } finally {
      this.isLoading.value = null;
    }
  }

  private firstPage(at: Start): Promise<HistoryPage> {
    if (at === "end") return this.page(this.until === null ? { order: "newest" } : { before_turn: this.until + 1 });
    if ("event" in at) return this.page({ event: at.event });
    return this.page({ after_turn: Math.max(0, at.turn - 1 - Math.floor(this.limit / 2)) });
  }

  private show(page: HistoryPage): void {
    const turns = page.turns
      .filter((turn) => this.until === null || turn.number <= this.until)
      .sort((a, b) => a.number - b.number);
    this.learn(turns);
    batch(() => {
      this.turns.value = turns;
      this.hasBefore.value = page.before !== null && (turns[0]?.number ?? 1) > 1;
      this.hasAfter.value = page.after !== null && (this.until === null || (turns.at(-1)?.number ?? 0) < this.until);
      this.isOpen.value = true;
    });
  }

  private async openDamaged(problem: Problem): Promise<void> {
    let size = this.limit;
    let turns: TurnRecord[] = [];
    while (size >= 1) {
      try {
        const page = await this.page({ after_turn: turns.at(-1)?.number ?? 0, limit: size });
        turns = [...turns, ...page.turns];
        if (page.after === null || page.turns.length === 0) break;
      } catch {
        // Half of it may be readable.
        size = Math.floor(size / 2);
      }
    }
    batch(() => {
      this.turns.value = turns;
      this.isOpen.value = true;
      this.problem.value = { where: "after", problem };
    });
  }

  private learn(turns: readonly TurnRecord[]): void {
    if (turns.length > 0) this.perTurn = Math.max(1, countOf(turns) / turns.length);
  }

  /** Reads the turns before those that are loaded. Returns how many were put before them. */
  async loadBefore(): Promise<readonly TurnRecord[]> {
    const first = this.turns.peek()[0];
    if (first === undefined || !this.hasBefore.peek() || this.isLoading.peek() !== null) return [];
    return await this.loadAt("before", { before_turn: first.number }, (page) => {
      const known = this.turns.peek();
      const fresh = page.turns.filter((turn) => turn.number < first.number).sort((a, b) => a.number - b.number);
      const kept = cut([...fresh, ...known], "end");
      this.turns.value = kept;
      this.hasBefore.value = (kept[0]?.number ?? 1) > 1;
      if (kept.length < fresh.length + known.length) this.hasAfter.value = true;
      return fresh;
    });
  }

  async loadAfter(): Promise<readonly TurnRecord[]> {
    const last = this.turns.peek().at(-1)?.number ?? 0;
    if (this.isLoading.peek() !== null) return [];
    return await this.loadAt("after", { after_turn: last }, (page) => {
      const known = this.turns.peek();
      const fresh = page.turns
        .filter((turn) => turn.number > (known.at(-1)?.number ?? 0) && (this.until === null || turn.number <= this.until))
        .sort((a, b) => a.number - b.number);
      const kept = cut([...known, ...fresh], "start");
      if (fresh.length > 0) this.turns.value = kept;
      this.hasAfter.value = page.after !== null && (this.until === null || (kept.at(-1)?.number ?? 0) < this.until);
      if (kept.length < fresh.length + known.length) this.hasBefore.value = true;
      return fresh;
    });
  }

  private async loadAt(
    where: "before" | "after",
    query: object,
    take: (page: HistoryPage) => readonly TurnRecord[],
  ): Promise<readonly TurnRecord[]> {
    this.isLoading.value = where;
    try {
      const page = await this.page(query);
      this.learn(page.turns);
      return batch(() => {
        if (this.problem.peek()?.where === where) this.problem.value = null;
        return take(page);
      });
    } catch (error) {
      this.problem.value = { where, problem: Problem.from(error) };
      return [];
    } finally {
      this.isLoading.value = null;
    }
  }

  /** A turn that the stream told. Many that come together are drawn together; each is drawn once. */
  add(turn: TurnRecord): void {
    if (!this.isOpen.peek() || this.until !== null) return;
    this.waiting.push(turn);
    if (this.frame !== 0) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.addWaiting();
    });
  }

  private addWaiting(): void {
    const arrived = this.waiting.sort((a, b) => a.number - b.number);
    this.waiting = [];
    const known = this.turns.peek();
    let last = known.at(-1)?.number ?? 0;
    const fresh: TurnRecord[] = [];
    for (const turn of arrived) {
      if (turn.number <= last) continue;
      if (turn.number > last + 1 || this.hasAfter.peek() || (!this.isAtEnd && countOf(known) > MAX_EVENTS)) {
        // Not the next one: the turns between are read.
        this.hasAfter.value = true;
        break;
      }
      fresh.push(turn);
      last = turn.number;
    }
    if (fresh.length > 0) {
      const all = [...known, ...fresh];
      const kept = this.isAtEnd ? cut(all, "start") : all;
      batch(() => {
        this.turns.value = kept;
        if (kept.length < all.length) this.hasBefore.value = true;
      });
    }
    if (this.hasAfter.peek() && this.isAtEnd) void this.loadAfter();
  }
}

export function countOf(turns: readonly TurnRecord[]): number {
  return turns.reduce((sum, turn) => sum + turn.events.length, 0);
}

/** At most so many events are kept; whole turns are left out at one end. */
function cut(turns: readonly TurnRecord[], from: "start" | "end"): readonly TurnRecord[] {
  let count = countOf(turns);
  let [first, last] = [0, turns.length];
  while (count > MAX_EVENTS && last - first > 1) {
    const gone = from === "start" ? turns[first++] : turns[--last];
    count -= gone?.events.length ?? 0;
  }
  return turns.slice(first, last);
}
