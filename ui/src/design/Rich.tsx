// Sentences of the engine, in which names and code stand between backticks. They are text like everything else: only the
// backticks become a typeface.
import type { JSX } from "preact";

import { visible } from "./Id.tsx";

export function Rich({ text }: { text: string }): JSX.Element {
  const parts = text.split("`");
  // An odd backtick is a character.
  if (parts.length % 2 === 0) return <bdi>{visible(text)}</bdi>;
  return (
    <>
      {parts.map((part, index) =>
        index % 2 === 1 ? (
          <code key={index}>
            <bdi>{visible(part)}</bdi>
          </code>
        ) : (
          <bdi key={index}>{visible(part)}</bdi>
        ),
      )}
    </>
  );
}

/** The server's sentences begin in lower case, as those of the command do. */
export function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

export interface Block {
  kind: "heading" | "text" | "item";
  text: string;
}

/** Lines of a hint as headings (they end with a colon), list items and paragraphs. */
export function blocksOf(hint: string): Block[] {
  const blocks: Block[] = [];
  for (const line of hint.split("\n").map((each) => each.trim())) {
    if (line === "") continue;
    const last = blocks.at(-1);
    if (line.startsWith("- ")) blocks.push({ kind: "item", text: line.slice(2) });
    else if (/^If .*:$/.test(line)) blocks.push({ kind: "heading", text: line.slice(0, -1) });
    else if (last !== undefined && last.kind !== "heading" && !/[.:]$/.test(last.text)) last.text += ` ${line}`;
    else blocks.push({ kind: "text", text: line });
  }
  return blocks;
}

export function Hint({ text }: { text: string }): JSX.Element {
  return (
    <div class="rich-hint">
      {blocksOf(text).map((block, index) =>
        block.kind === "heading" ? (
          <h4 key={index}>
            <Rich text={block.text} />
          </h4>
        ) : (
          <p key={index} class={block.kind}>
            <Rich text={block.text} />
          </p>
        ),
      )}
    </div>
  );
}
