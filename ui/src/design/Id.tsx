// Text from outside: ids, names, errors, attributes. It is only ever text, and characters that hide or reorder other
// characters are made visible, so that two ids that look alike are alike.
import type { ComponentChildren, JSX } from "preact";

// Controls, line separators, bidi controls, zero-width characters, variation selectors' kin, tags, lone surrogates.
const INVISIBLE = new RegExp(
  [
    String.raw`[\u0000-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e]`,
    String.raw`[\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffc]`,
    String.raw`[\u{e0000}-\u{e007f}]`,
    String.raw`\p{Cs}`,
  ].join("|"),
  "gu",
);

function codeOf(character: string): string {
  return `U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}`;
}

/** Text with its invisible characters shown by their codes. `keepLines` leaves line breaks and tabs as they are. */
export function visible(text: string, keepLines = false): ComponentChildren {
  if (text.search(INVISIBLE) < 0) return text;
  const parts: ComponentChildren[] = [];
  let end = 0;
  for (const found of text.matchAll(INVISIBLE)) {
    if (keepLines && /[\n\r\t]/.test(found[0])) continue;
    parts.push(text.slice(end, found.index));
    parts.push(<span class="invisible">{codeOf(found[0])}</span>);
    end = found.index + found[0].length;
  }
  parts.push(text.slice(end));
  return parts;
}

/** An id or a name, isolated from the direction of the text around it. */
export function Id({ text, href, isClipped = false }: { text: string; href?: string; isClipped?: boolean }): JSX.Element {
  const shown = text === "" ? <span class="muted">(empty)</span> : visible(text);
  const kind = isClipped ? "id clip" : "id";
  const title = isClipped ? text : undefined;
  return href === undefined ? (
    <bdi class={kind} title={title}>
      {shown}
    </bdi>
  ) : (
    <a class={kind} href={href} title={title}>
      {shown}
    </a>
  );
}

/** Text that a program wrote, such as an error. */
export function Text({ text, keepLines = false }: { text: string; keepLines?: boolean }): JSX.Element {
  return <bdi>{visible(text, keepLines)}</bdi>;
}
