// A place in the source, `file:line:column`, with links made from the templates that the server was given. Nothing is loaded
// from them.
import type { JSX } from "preact";

import { CopyButton } from "../design/Copy.tsx";
import { Text } from "../design/Id.tsx";
import { Icon } from "../design/icons.tsx";
import { session } from "./state.ts";

// Schemes that open a page or an editor; none that could run a script here.
const SCHEMES = /^(https?|vscode|vscode-insiders|vscodium|cursor|zed|idea|jetbrains|subl|txmt|emacs):/i;

/** The link that a template makes of a place, or `null` if the server has no such template. */
export function placeHref(name: "editor" | "repository", place: string): string | null {
  const known = session.value.value as { links?: Record<string, string> } | undefined;
  const template = known?.links?.[name];
  if (template === undefined || !SCHEMES.test(template)) return null;
  const [, file = place, line = "1", column = "1"] = /^(.*?):(\d+)(?::(\d+))?$/.exec(place) ?? [];
  const values: Record<string, string> = { file: file.split("/").map(encodeURIComponent).join("/"), line, column };
  return template.replace(/\{(file|line|column)\}/g, (_, part: string) => values[part] ?? "");
}

export function SourcePlace({ place }: { place: string }): JSX.Element {
  const links = (["editor", "repository"] as const).flatMap((name) => {
    const link = placeHref(name, place);
    return link === null ? [] : [{ name, link }];
  });
  return (
    <>
      <code><Text text={place} /></code>
      <CopyButton text={place} label="Copy the place" />
      {links.map(({ name, link }) => (
        <a key={name} class="link row" href={link} target="_blank" rel="noreferrer"><Icon name="external" size={12} /> {name}</a>
      ))}
    </>
  );
}
