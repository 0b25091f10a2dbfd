// Failures by reason: the server counts them, and names some instances with their errors.
import type { FullOperation } from "../../api/ops.ts";

export interface Reason {
  code: string;
  text: string;
  count: number;
  /** Some of the instances. */
  ids: string[];
}

export function reasonsOf({ failures, reasons = [], failed }: Pick<FullOperation, "failures" | "reasons" | "failed">): Reason[] {
  const rows: Reason[] = reasons.map((reason) => ({ ...reason, ids: [] }));
  for (const { id, error } of failures) {
    rows.find((row) => error === row.text || (row.code !== "" && error.includes(row.code)))?.ids.push(id);
  }
  rows.sort((a, b) => b.count - a.count);
  const named = rows.reduce((sum, row) => sum + row.count, 0);
  return named < failed ? [...rows, { code: "", text: "Other reasons", count: failed - named, ids: [] }] : rows;
}
