// The rows of a list of instances: pages that are read as one scrolls, and kept near the view only; brought up to date by the
// stream for the first 100 rows and by reading again for those in view. Nothing moves unless `mayMove` says that it may.
import { batch, effect, signal } from "@preact/signals";

import { get } from "../../api/client.ts";
import { Problem } from "../../api/problem.ts";
import { follow } from "../../api/stream/stream.ts";
import type { ListedInstance } from "../../api/types.ts";
import { frozenSince } from "../../frame/state.ts";

const PAGE = 100;
/** Pages that are kept; others are read again when one scrolls back. */
const KEPT = 12;
/** How often rows in view are read again when the stream does not tell about them. */
const REFRESH_MS = 10_000;
/** What a row has besides its columns: what it waits for, or how it ended. */
const INCLUDED = "waits,outcome";

export type Row = ListedInstance;

interface ListPage {
  cursor: string | null;
  next: string | null;
  /** `null` if it was let go. */
  rows: Row[] | null;
  count: number;
  isPartial: boolean;
  scanned: number;
  at: number;
}

interface Changes {
  rows?: Row[];
  changed?: Row[];
  left?: string[];
  more: boolean;
}

export class InstanceList {
  /** Counts changes of what is shown: components that read it are drawn again. */
  readonly drawn = signal(0);
  readonly problem = signal<Problem | null>(null);
  readonly isLoading = signal(true);
  /** New rows that wait for somebody to look at them. */
  readonly waiting = signal(0);
  private readonly query: string;
  private readonly order: string;
  private readonly mayMove: () => boolean;
  private pages: ListPage[] = [];
  private readonly fresh = new Map<string, Row>();
  /** Rows that no longer fit the filter, and are shown as such until they may go. */
  private readonly left = new Set<string>();
  private readonly changedAt = new Map<string, number>();
  /** The rows that the stream follows: key and time of start. */
  private top = new Map<string, number>();
  private view: [number, number] = [0, 0];
  private busy: Promise<void> | null = null;
  private readonly stops: (() => void)[] = [];
  private timer: ReturnType<typeof setTimeout> | undefined;
  private isOver = false;
  /** Messages were dropped while the page was frozen. */
  private isBehind = false;

  constructor(query: string, order: string, mayMove: () => boolean) {
    this.query = query;
    this.order = order;
    this.mayMove = mayMove;
  }

  begin(): void {
    void this.followed();
    const every = setInterval(() => {
      if (document.visibilityState === "visible" && this.view[1] >= PAGE) this.refreshSoon(0);
    }, REFRESH_MS);
    this.stops.push(() => clearInterval(every));
    this.stops.push(
      effect(() => {
        if (frozenSince.value === null && this.isBehind) this.refreshSoon(0);
      }),
    );
  }

  /**
   * Follows the list once it was read. The stream is shared by all tabs, and the server refuses it as a whole: a filter that
   * the server does not take must not get there.
   */
  private async followed(): Promise<void> {
    await this.more();
    if (this.isOver || this.pages.length === 0) return;
    const stop = follow(
      { kind: "list", filter: `${this.query}${this.query === "" ? "" : "&"}include=${encodeURIComponent(INCLUDED)}` },
      {
        message: (event, data) => this.receive(event, data as Changes),
        open: (gap) => {
          if (gap) this.refreshSoon(0);
        },
      },
    );
    this.stops.push(stop);
  }

  /** Tries again after a problem. */
  async again(): Promise<void> {
    if (this.pages.length === 0) await this.followed();
    else await this.refresh();
  }

  stop(): void {
    this.isOver = true;
    clearTimeout(this.timer);
    for (const stop of this.stops) stop();
  }

  get length(): number {
    return this.pages.reduce((sum, page) => sum + page.count, 0);
  }
  /** Whether there may be rows after those that were read. */
  get hasMore(): boolean {
    const last = this.pages[this.pages.length - 1];
    return last === undefined || last.next !== null;
  }
  /** A scan stopped before it filled its page, and goes on when asked. */
  get partial(): { scanned: number } | null {
    const last = this.pages[this.pages.length - 1];
    if (last === undefined || !last.isPartial || last.next === null) return null;
    return { scanned: this.pages.reduce((sum, page) => sum + page.scanned, 0) };
  }

  row(index: number): Row | null {
    let at = index;
    for (const page of this.pages) {
      if (at < page.count) return page.rows?.[at] ?? null;
      at -= page.count;
    }
    return null;
  }

  hasLeft(key: string): boolean {
    return this.left.has(key);
  }
  /** Whether the row changed within the last second. */
  isChanged(key: string): boolean {
    return Date.now() - (this.changedAt.get(key) ?? 0) < 1_000;
  }
  *rows(): Iterable<Row> {
    for (const page of this.pages) yield* page.rows ?? [];
  }

  /** Tells which rows are in view, so that they and the next ones are there. */
  show(first: number, last: number): void {
    this.view = [first, last];
    let at = 0;
    for (const page of this.pages) {
      const isNear = at <= last && at + page.count >= first;
      if (isNear && page.rows === null) void this.readAgain(page);
      at += page.count;
    }
    // A scan that found little goes on when it is asked, not by itself.
    if (last >= this.length - PAGE / 2 && this.hasMore && this.partial === null) void this.more();
  }

  /** Reads the next page. */
  more(): Promise<void> {
    this.busy ??= this.readNext().finally(() => (this.busy = null));
    return this.busy;
  }

  private async readNext(): Promise<void> {
    const last = this.pages[this.pages.length - 1];
    if (last !== undefined && last.next === null) return;
    this.isLoading.value = true;
    try {
      const page = await this.read(last?.next ?? null);
      if (this.isOver) return;
      const known = new Set([...this.rows()].map((row) => row.key));
      page.rows = (page.rows ?? []).filter((row) => !known.has(row.key));
      page.count = page.rows.length;
      this.pages.push(page);
      this.letGo();
      this.done(null);
    } catch (error) {
      this.done(Problem.from(error));
    }
  }

  private async read(cursor: string | null): Promise<ListPage> {
    const query = { ...Object.fromEntries(new URLSearchParams(this.query)), limit: PAGE, include: INCLUDED, cursor };
    const answer = await get("instances", { query });
    const { rows, next, partial, scanned = 0 } = answer;
    return { cursor, next, rows, count: rows.length, isPartial: partial ?? false, scanned, at: Date.now() };
  }

  private done(problem: Problem | null): void {
    batch(() => {
      this.problem.value = problem;
      this.isLoading.value = false;
      this.drawn.value += 1;
    });
  }

  /** Keeps the pages around the view. */
  private letGo(): void {
    let at = 0;
    for (const page of this.pages) {
      const distance = Math.max(at - this.view[1], this.view[0] - (at + page.count), 0);
      if (distance > (KEPT / 2) * PAGE && at > 0) page.rows = null;
      at += page.count;
    }
  }

  private refreshSoon(inMs: number): void {
    this.isBehind = frozenSince.peek() !== null;
    if (this.isBehind) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.refresh(), inMs);
  }

  /** Reads the pages in view again. */
  async refresh(): Promise<void> {
    let at = 0;
    for (const page of [...this.pages]) {
      if (at <= this.view[1] && at + page.count >= this.view[0]) await this.readAgain(page);
      at += page.count;
    }
  }

  private async readAgain(page: ListPage): Promise<void> {
    try {
      const answer = await this.read(page.cursor);
      if (!this.isOver) this.merge(page, answer);
      this.done(null);
    } catch (error) {
      this.done(Problem.from(error));
    }
  }

  private merge(page: ListPage, answer: ListPage): void {
    const elsewhere = new Set<string>();
    for (const other of this.pages) if (other !== page) for (const row of other.rows ?? []) elsewhere.add(row.key);
    const rows = (answer.rows ?? []).filter((row) => !elsewhere.has(row.key));
    if (page.rows === null) {
      [page.rows, page.count, page.at] = [rows, rows.length, answer.at];
      return;
    }
    const old = new Map(page.rows.map((row) => [row.key, row]));
    const now = new Map(rows.map((row) => [row.key, row]));
    for (const row of rows) {
      if (!old.has(row.key)) this.fresh.set(row.key, row);
      else this.note(old.get(row.key), row);
    }
    // The answer reaches as far as its last row; what should be before that and is not there has left.
    const end = answer.rows?.at(-1);
    for (const row of page.rows) {
      if (now.has(row.key) || (answer.next !== null && end !== undefined && this.compare(row, end) > 0)) continue;
      this.left.add(row.key);
    }
    page.rows = page.rows.map((row) => now.get(row.key) ?? row);
    page.at = answer.at;
    this.settle();
  }

  private note(old: Row | undefined, row: Row): void {
    if (old === undefined || (old.status === row.status && (old.blocked === null) === (row.blocked === null))) return;
    this.changedAt.set(row.key, Date.now());
  }

  private receive(event: string, changes: Changes): void {
    if (frozenSince.value !== null) {
      this.isBehind = true;
      return;
    }
    if (event === "list") {
      const rows = changes.rows ?? [];
      const now = new Set(rows.map((row) => row.key));
      const gone = [...this.top.keys()].filter((key) => !now.has(key));
      this.apply(rows, gone, changes.more);
    } else {
      this.apply(changes.changed ?? [], changes.left ?? [], changes.more);
    }
  }

  private apply(changed: Row[], gone: string[], more: boolean): void {
    for (const key of gone) this.top.delete(key);
    for (const row of changed) this.top.set(row.key, row.created_ms);
    // Before the first page has been read there is nothing to compare with.
    if (this.pages.length === 0) return;
    const known = new Map([...this.rows()].map((row) => [row.key, row]));
    const updates = new Map<string, Row>();
    for (const row of changed) {
      const old = known.get(row.key);
      if (old === undefined) this.fresh.set(row.key, row);
      else {
        this.note(old, row);
        updates.set(row.key, row);
      }
    }
    for (const page of this.pages) page.rows = page.rows?.map((row) => updates.get(row.key) ?? row) ?? null;
    const starts = [...this.top.values()];
    const edge = this.order === "oldest" ? Math.max(...starts) : Math.min(...starts);
    for (const key of gone) {
      const row = known.get(key);
      if (row === undefined) this.fresh.delete(key);
      // A row that newer ones pushed out of the first 100 still fits the filter.
      else if (!more || !(this.order === "oldest" ? row.created_ms > edge : row.created_ms < edge)) this.left.add(key);
    }
    for (const row of changed) this.left.delete(row.key);
    this.settle();
    this.drawn.value += 1;
  }

  /** Lets new rows in and those that left out, if that disturbs nobody. */
  settle(isAsked = false): void {
    // Rows past the end of what was read will be read when one scrolls there.
    const last = [...this.rows()].at(-1);
    for (const [key, row] of this.fresh) {
      if (this.hasMore && last !== undefined && this.compare(row, last) > 0) this.fresh.delete(key);
    }
    if (isAsked || this.mayMove()) {
      for (const page of this.pages) {
        if (page.rows === null) continue;
        page.rows = page.rows.filter((row) => !this.left.has(row.key));
        page.count = page.rows.length;
      }
      this.left.clear();
      for (const row of this.fresh.values()) this.insert(row);
      this.fresh.clear();
    }
    batch(() => {
      this.waiting.value = this.fresh.size;
      this.drawn.value += 1;
    });
  }

  private insert(row: Row): void {
    const page =
      this.pages.find((page) => {
        const last = page.rows?.at(-1);
        return last !== undefined && this.compare(row, last) <= 0;
      }) ?? this.pages.findLast((page) => page.rows !== null);
    if (page?.rows == null) return;
    if (page.rows.some((other) => other.key === row.key)) return;
    const at = page.rows.findIndex((other) => this.compare(row, other) < 0);
    page.rows.splice(at < 0 ? page.rows.length : at, 0, row);
    page.count = page.rows.length;
    this.changedAt.set(row.key, Date.now());
  }

  /** Negative if `a` stands before `b`. */
  private compare(a: Row, b: Row): number {
    const order = a.created_ms - b.created_ms || (a.key < b.key ? -1 : a.key > b.key ? 1 : 0);
    return this.order === "oldest" ? order : -order;
  }
}
