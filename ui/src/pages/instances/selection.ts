// Which rows are selected: some, by key, or all that the filter shows, which is then an operation of the server.
import { signal } from "@preact/signals";

import type { Row } from "./list.ts";

export class Selection {
  private readonly chosen = signal<ReadonlyMap<string, Row>>(new Map());
  /** All that the filter shows, also rows that were never loaded. */
  readonly isAll = signal(false);
  private anchor = 0;

  has(key: string): boolean {
    return this.isAll.value || this.chosen.value.has(key);
  }
  get rows(): Row[] {
    return [...this.chosen.value.values()];
  }
  get size(): number {
    return this.chosen.value.size;
  }
  get isEmpty(): boolean {
    return !this.isAll.value && this.chosen.value.size === 0;
  }

  clear(): void {
    this.isAll.value = false;
    this.chosen.value = new Map();
  }

  setAll(rows: readonly Row[]): void {
    this.isAll.value = false;
    this.chosen.value = new Map(rows.map((row) => [row.key, row]));
  }

  /** Toggles a row; with `isRange` all from the last one to it get the same. */
  toggle(row: Row, index: number, isRange: boolean, at: (index: number) => Row | null): void {
    this.isAll.value = false;
    const next = new Map(this.chosen.value);
    const isOn = !next.has(row.key);
    const [from, to] = isRange ? [Math.min(this.anchor, index), Math.max(this.anchor, index)] : [index, index];
    for (let each = from; each <= to; each++) {
      const other = each === index ? row : at(each);
      if (other === null) continue;
      if (isOn) next.set(other.key, other);
      else next.delete(other.key);
    }
    this.anchor = index;
    this.chosen.value = next;
  }
}
