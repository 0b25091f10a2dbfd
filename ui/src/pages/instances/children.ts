// Children that are unfolded under their parents, loaded when they are unfolded.
import { signal } from "@preact/signals";

import { get } from "../../api/client.ts";
import type { InstanceList, Row } from "./list.ts";
import type { Lines } from "./Table.tsx";

const PER_PARENT = 200;

export class Children {
  /** By the key of the parent; `null` while they are read. */
  private readonly unfolded = signal<ReadonlyMap<string, Row[] | null>>(new Map());

  /** The rows of the list with unfolded children after their parents. */
  lines(list: InstanceList, canUnfold: boolean): Lines {
    const unfolded = this.unfolded.value;
    const base = {
      canUnfold,
      isUnfolded: (key: string) => unfolded.has(key),
      unfold: (row: Row) => void this.toggle(row),
    };
    if (unfolded.size === 0) {
      return { ...base, length: list.length, at: (index) => ({ row: list.row(index), depth: 0 }) };
    }
    const flat: { row: Row | null; depth: number }[] = [];
    const add = (row: Row | null, depth: number) => {
      flat.push({ row, depth });
      if (row === null || !unfolded.has(row.key)) return;
      for (const child of unfolded.get(row.key) ?? []) add(child, depth + 1);
    };
    for (let index = 0; index < list.length; index++) add(list.row(index), 0);
    return { ...base, length: flat.length, at: (index) => flat[index] ?? { row: null, depth: 0 } };
  }

  private async toggle(row: Row): Promise<void> {
    const next = new Map(this.unfolded.value);
    if (next.delete(row.key)) {
      this.unfolded.value = next;
      return;
    }
    this.unfolded.value = next.set(row.key, null);
    const query = { key: row.key, limit: PER_PARENT };
    const rows = await get("instances/{id}/children", { path: [row.id], query }).then(
      (answer) => answer.rows,
      () => [],
    );
    this.unfolded.value = new Map(this.unfolded.value).set(row.key, rows);
  }
}
