// Reads the part of Markdown that the guide's page of errors uses: headings, paragraphs, lists, code, bold and links.

export interface Span {
  kind: "text" | "code" | "bold" | "link";
  text: string;
  target?: string;
}

export type Block =
  | { kind: "heading"; level: number; text: string }
  | { kind: "paragraph"; spans: Span[] }
  | { kind: "list"; items: Span[][] }
  | { kind: "code"; text: string };

const INLINE = /`([^`]+)`|\*\*([^*]+)\*\*|\[([^\]]+)\]\(([^)]+)\)/g;

export function spansOf(text: string): Span[] {
  const spans: Span[] = [];
  let end = 0;
  for (const found of text.matchAll(INLINE)) {
    if (found.index > end) spans.push({ kind: "text", text: text.slice(end, found.index) });
    const [whole, code, bold, link, target] = found;
    if (code !== undefined) spans.push({ kind: "code", text: code });
    else if (bold !== undefined) spans.push({ kind: "bold", text: bold });
    else if (link !== undefined && target !== undefined) spans.push({ kind: "link", text: link, target });
    end = found.index + whole.length;
  }
  if (end < text.length) spans.push({ kind: "text", text: text.slice(end) });
  return spans;
}

export function blocksOf(markdown: string): Block[] {
  const blocks: Block[] = [];
  const lines = markdown.split("\n");
  for (let at = 0; at < lines.length;) {
    const line = lines[at] ?? "";
    const heading = /^(#+) (.*)$/.exec(line);
    if (line.trim() === "") {
      at += 1;
    } else if (heading !== null) {
      blocks.push({ kind: "heading", level: heading[1]?.length ?? 1, text: heading[2] ?? "" });
      at += 1;
    } else if (line.startsWith("```")) {
      const end = lines.indexOf("```", at + 1);
      blocks.push({ kind: "code", text: lines.slice(at + 1, end < 0 ? lines.length : end).join("\n") });
      at = end < 0 ? lines.length : end + 1;
    } else {
      let last = at;
      while ((lines[last] ?? "").trim() !== "" && !(lines[last] ?? "").startsWith("```")) last += 1;
      blocks.push(paragraphOf(lines.slice(at, last)));
      at = last;
    }
  }
  return blocks;
}

function paragraphOf(lines: string[]): Block {
  if (!(lines[0] ?? "").startsWith("- ")) return { kind: "paragraph", spans: spansOf(lines.join(" ")) };
  const items = lines.join("\n").slice(2).split("\n- ");
  return { kind: "list", items: items.map((item) => spansOf(item.replace(/\n\s*/g, " "))) };
}
