// A payload as lines to draw: read once into places in its text, folded and unfolded by line. Values are never converted, so
// that numbers, the order of keys and repeated keys appear as recorded.
import { Scanner, unquote } from "../api/json.ts";

export interface JsonNode {
  kind: "object" | "array" | "string" | "number" | "word";
  /** The quoted key, for a member of an object. */
  key: string | null;
  /** Where it stands in its parent, for arrays. */
  index: number | null;
  start: number;
  end: number;
  children: JsonNode[];
  parent: JsonNode | null;
  depth: number;
  /** Nodes within it and itself. */
  size: number;
}

const MAX_DEPTH = 1_000;

/** Reads text; throws a `SyntaxError` if it is not JSON. */
export function readTree(text: string): JsonNode {
  const scanner = new Scanner(text);
  const root = readNode(scanner, null, null, null);
  scanner.space();
  if (scanner.at !== text.length) scanner.fail("unexpected text");
  return root;
}

function readNode(scanner: Scanner, parent: JsonNode | null, key: string | null, index: number | null): JsonNode {
  scanner.space();
  const depth = parent === null ? 0 : parent.depth + 1;
  if (depth > MAX_DEPTH) scanner.fail("nested too deeply");
  const node: JsonNode = { kind: "word", key, index, start: scanner.at, end: 0, children: [], parent, depth, size: 1 };
  const first = scanner.peek();
  if (first === "{" || first === "[") {
    node.kind = first === "{" ? "object" : "array";
    readChildren(scanner, node, first === "{" ? "}" : "]");
  } else if (first === '"') {
    node.kind = "string";
    scanner.quoted();
  } else if (first === "t") scanner.take("true");
  else if (first === "f") scanner.take("false");
  else if (first === "n") scanner.take("null");
  else {
    node.kind = "number";
    scanner.number();
  }
  node.end = scanner.at;
  return node;
}

function readChildren(scanner: Scanner, node: JsonNode, close: string): void {
  scanner.at += 1;
  scanner.space();
  while (scanner.peek() !== close) {
    let key: string | null = null;
    if (node.kind === "object") {
      scanner.space();
      key = scanner.quoted();
      scanner.space();
      scanner.take(":");
    }
    const child = readNode(scanner, node, key, node.kind === "array" ? node.children.length : null);
    node.children.push(child);
    node.size += child.size;
    scanner.space();
    if (scanner.peek() === close) break;
    scanner.take(",");
  }
  scanner.take(close);
}

export interface JsonLine {
  node: JsonNode;
  /** `close` is the line of a closing bracket. */
  part: "open" | "close";
}

/** The lines to draw, with `folded` nodes on one line each. */
export function linesOf(root: JsonNode, folded: ReadonlySet<JsonNode>): JsonLine[] {
  const lines: JsonLine[] = [];
  const visit = (node: JsonNode) => {
    lines.push({ node, part: "open" });
    if (node.children.length === 0 || folded.has(node)) return;
    for (const child of node.children) visit(child);
    lines.push({ node, part: "close" });
  };
  visit(root);
  return lines;
}

/** Every node with children, for folding all but the first levels. */
export function foldable(root: JsonNode, fromDepth: number): JsonNode[] {
  const found: JsonNode[] = [];
  const visit = (node: JsonNode) => {
    if (node.children.length > 0 && node.depth >= fromDepth) found.push(node);
    for (const child of node.children) visit(child);
  };
  visit(root);
  return found;
}

/** Nodes whose key or own value contains the words, whatever their case. */
export function search(root: JsonNode, text: string, words: string): JsonNode[] {
  const wanted = words.toLowerCase();
  const found: JsonNode[] = [];
  if (wanted === "") return found;
  const visit = (node: JsonNode) => {
    const own = node.kind === "object" || node.kind === "array" ? "" : text.slice(node.start, node.end);
    if ((node.key ?? "").toLowerCase().includes(wanted) || own.toLowerCase().includes(wanted)) found.push(node);
    for (const child of node.children) visit(child);
  };
  visit(root);
  return found;
}

/** The path in the form of jq: `.items[3]."unit price"`. */
export function pathOf(node: JsonNode): string {
  let path = "";
  for (let at = node; at.parent !== null; at = at.parent) {
    const key = at.key === null ? "" : unquote(at.key);
    path = at.index !== null ? `[${at.index}]${path}` : `.${/^[A-Za-z_]\w*$/.test(key) ? key : at.key}${path}`;
  }
  return path === "" ? "." : path.startsWith("[") ? `.${path}` : path;
}
