// Failures by reason: the server counts by code and names some instances with their errors.
import type { FullOperation } from "../../api/ops.ts";

export interface Reason {
  text: string;
  count: number;
  ids: string[];
}

export function reasonsOf({ failures, reasons, failed }: Pick<FullOperation, "failures" | "reasons" | "failed">): Reason[] {
  const found = new Map<string, Reason>();
  for (const { id, error } of failures) {
    // Errors name the instance, which differs.
    const text = error.replaceAll(`"${id}"`, "…").replaceAll(`\`${id}\``, "…");
    const code = /PER-\d{4}/.exec(error)?.[0];
    const key = code !== undefined && reasons?.[code] !== undefined ? code : text;
    const known = found.get(key);
    if (known === undefined) found.set(key, { text, count: reasons?.[key] ?? 1, ids: [id] });
    else {
      known.ids.push(id);
      if (reasons?.[key] === undefined) known.count++;
    }
  }
  for (const [code, count] of Object.entries(reasons ?? {})) if (!found.has(code)) found.set(code, { text: code, count, ids: [] });
  const rows = [...found.values()].sort((a, b) => b.count - a.count);
  const named = rows.reduce((sum, row) => sum + row.count, 0);
  return named < failed ? [...rows, { text: "Others that were not named", count: failed - named, ids: [] }] : rows;
}
