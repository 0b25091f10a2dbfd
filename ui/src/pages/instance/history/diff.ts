// Compares two payloads line by line. Numbers and keys stay as they were recorded.
import { readTree, type JsonNode } from "../../../design/json-tree.ts";

export interface DiffLine {
  left: string | null;
  right: string | null;
  isSame: boolean;
}

const MAX_CELLS = 4_000_000;
const MAX_LINES = 20_000;

/** JSON on lines of its own for each member, digit for digit. */
export function prettyLines(text: string): string[] {
  let root: JsonNode;
  try {
    root = readTree(text);
  } catch {
    return text.split("\n").slice(0, MAX_LINES);
  }
  const lines: string[] = [];
  const visit = (node: JsonNode, tail: string) => {
    if (lines.length >= MAX_LINES) return;
    const lead = "  ".repeat(node.depth) + (node.key === null ? "" : `${node.key}: `);
    if (node.children.length === 0) {
      lines.push(lead + text.slice(node.start, node.end) + tail);
      return;
    }
    const [open, close] = node.kind === "object" ? ["{", "}"] : ["[", "]"];
    lines.push(lead + open);
    node.children.forEach((child, index) => visit(child, index < node.children.length - 1 ? "," : ""));
    lines.push("  ".repeat(node.depth) + close + tail);
  };
  visit(root, "");
  return lines;
}

export function diffLines(left: readonly string[], right: readonly string[]): DiffLine[] {
  let start = 0;
  while (start < left.length && start < right.length && left[start] === right[start]) start++;
  let [a, b] = [left.length, right.length];
  while (a > start && b > start && left[a - 1] === right[b - 1]) [a, b] = [a - 1, b - 1];
  const same = (line: string): DiffLine => ({ left: line, right: line, isSame: true });
  return [...left.slice(0, start).map(same), ...middle(left.slice(start, a), right.slice(start, b)), ...left.slice(a).map(same)];
}

/** The longest common part of what differs; too much of it is shown as all changed. */
function middle(left: readonly string[], right: readonly string[]): DiffLine[] {
  if (left.length * right.length > MAX_CELLS) return paired(left, right);
  const width = right.length + 1;
  const best = new Uint32Array((left.length + 1) * width);
  for (let i = left.length - 1; i >= 0; i--) {
    for (let j = right.length - 1; j >= 0; j--) {
      const at = i * width + j;
      best[at] = left[i] === right[j] ? (best[at + width + 1] ?? 0) + 1 : Math.max(best[at + width] ?? 0, best[at + 1] ?? 0);
    }
  }
  const lines: DiffLine[] = [];
  let [i, j] = [0, 0];
  let [gone, come]: [string[], string[]] = [[], []];
  const flush = () => {
    lines.push(...paired(gone, come));
    [gone, come] = [[], []];
  };
  while (i < left.length || j < right.length) {
    const [one, other] = [left[i], right[j]];
    if (one !== undefined && one === other) {
      flush();
      lines.push({ left: one, right: one, isSame: true });
      [i, j] = [i + 1, j + 1];
    } else if (other === undefined || (one !== undefined && (best[(i + 1) * width + j] ?? 0) >= (best[i * width + j + 1] ?? 0))) {
      gone.push(one ?? "");
      i++;
    } else {
      come.push(other);
      j++;
    }
  }
  flush();
  return lines;
}

function paired(left: readonly string[], right: readonly string[]): DiffLine[] {
  return Array.from({ length: Math.max(left.length, right.length) }, (_, index) => ({
    left: left[index] ?? null,
    right: right[index] ?? null,
    isSame: false,
  }));
}
