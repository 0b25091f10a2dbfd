// What can be said about a version: whether it is missing, still needed, or can be removed.
import type { FullNode, Version } from "../../api/ops.ts";

export interface Verdict {
  kind: "missing" | "removable" | "partial" | "current" | "needed" | "any";
  text: string;
}

/** Compares `1.10.0` and `1.9.3-beta` by their numbers; a pre-release comes before its release. */
export function compareVersions(a: string, b: string): number {
  const [left, right] = [a, b].map((text) => text.split(/[-+]/, 2) as [string, string?]) as [
    [string, string?],
    [string, string?],
  ];
  const [x, y] = [left[0].split("."), right[0].split(".")];
  for (let index = 0; index < Math.max(x.length, y.length); index++) {
    const [p, q] = [x[index] ?? "0", y[index] ?? "0"];
    const by = Number(p) - Number(q);
    if (Number.isNaN(by) ? p !== q : by !== 0) return Number.isNaN(by) ? (p < q ? -1 : 1) : by;
  }
  if (left[1] === right[1]) return 0;
  if (left[1] === undefined) return 1;
  if (right[1] === undefined) return -1;
  return left[1] < right[1] ? -1 : 1;
}

export function verdictOf(row: Version, ofName: readonly Version[], live: readonly FullNode[]): Verdict {
  const open = `${row.open.rows.toLocaleString("en")}${row.open.more ? "+" : ""}`;
  if (row.version === "") return { kind: "any", text: "Not begun: the newest version is taken then" };
  if (live.length === 0) return { kind: "any", text: "No runtime is live" };
  if (row.nodes.length === 0)
    return {
      kind: "missing",
      text: `No live node has it; ${open} open ${row.open.rows === 1 ? "instance needs" : "instances need"} it`,
    };
  const newer = ofName.filter((other) => other.nodes.length > 0 && compareVersions(other.version, row.version) > 0);
  if (!row.is_needed && newer.length > 0)
    return { kind: "removable", text: `No open instance needs ${row.version}: its code may be removed` };
  const owners = live.filter((node) => node.owns_shards);
  const lacking = owners.filter((node) => !row.nodes.includes(node.id));
  if (lacking.length > 0)
    return {
      kind: "partial",
      text: `Not on ${lacking
        .slice(0, 2)
        .map((node) => node.name)
        .join(", ")}${lacking.length > 2 ? ` and ${lacking.length - 2} more` : ""}`,
    };
  if (newer.length > 0) return { kind: "needed", text: "Still needed" };
  return { kind: "current", text: "Current" };
}
