// What is odd about a node, compared with the others and with the store's clock.
import type { FullNode } from "../../api/ops.ts";

export interface Oddity {
  text: string;
  tone: "red" | "amber";
  why: string;
}

/** The longest time that each node's lease had left: about its length, which no answer tells. */
const longest = new Map<string, number>();
const SHORT = 0.34;
const CLOCK_MS = 1_000;

export function leaseLeft(node: FullNode, at: number): { left: number; of: number } {
  const left = Math.max(0, node.expires - at);
  const of = Math.max(longest.get(node.id) ?? 0, left);
  longest.set(node.id, of);
  return { left, of };
}

function versionOfMost(nodes: readonly FullNode[]): string | null {
  const counts = new Map<string, number>();
  for (const node of nodes) counts.set(node.version, (counts.get(node.version) ?? 0) + 1);
  const [first, second] = [...counts].sort((a, b) => b[1] - a[1]);
  return first === undefined || (second !== undefined && second[1] === first[1]) ? null : first[0];
}

const nameOf = ([name, version]: readonly string[]) => `${name ?? ""} ${version ?? ""}`;

/** What other owners have registered and this one has not. */
export function lacks(node: FullNode, all: readonly FullNode[]): string[] {
  if (!node.owns_shards) return [];
  const own = new Set(node.orchestrations.map(nameOf));
  const others = all
    .filter((other) => other.is_live && other.owns_shards && other.id !== node.id)
    .flatMap((other) => other.orchestrations.map(nameOf));
  return [...new Set(others)].filter((name) => !own.has(name)).sort();
}

export function odditiesOf(node: FullNode, all: readonly FullNode[], at: number): Oddity[] {
  if (!node.is_live) {
    return [
      {
        text: "Lease expired",
        tone: "red",
        why: "It did not renew its lease: it crashed, hangs, or cannot reach the store. Another node takes its shards over.",
      },
    ];
  }
  const live = all.filter((other) => other.is_live);
  const { left, of } = leaseLeft(node, at);
  const most = versionOfMost(live);
  const missing = lacks(node, all);
  const found: (Oddity | false)[] = [
    left < of * SHORT && {
      text: "Lease short",
      tone: "amber",
      why: "It renews its lease late: the machine is busy, or the store slow. If the lease runs out, another node takes over.",
    },
    (Math.abs(node.clock_offset_ms ?? 0) > CLOCK_MS || node.since > at + CLOCK_MS) && {
      text: "Clock off",
      tone: "amber",
      why: "Its clock differs from the store's by more than a second. Timers fire by the clock of the node that owns the shard.",
    },
    most !== null &&
      node.version !== most && { text: `Perennial ${node.version}`, tone: "amber", why: `Most nodes run Perennial ${most}.` },
    node.owns_shards &&
      node.shards === 0 && { text: "Owns no shard", tone: "amber", why: "It can own shards, and other nodes have all of them." },
    missing.length > 0 && {
      text: `Lacks ${missing.length} ${missing.length === 1 ? "version" : "versions"}`,
      tone: "amber",
      why:
        `Other nodes have ${missing.slice(0, 5).join(", ")}${missing.length > 5 ? ", …" : ""}. ` +
        "Instances of these wait when their shard is here.",
    },
    node.slots > 0 &&
      node.free_slots === 0 && { text: "No free slot", tone: "amber", why: "It runs as many activities as it may; more wait." },
  ];
  return found.filter((each): each is Oddity => each !== false);
}
