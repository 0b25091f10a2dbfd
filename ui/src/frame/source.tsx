// Links made from the templates that the server was given: to a place in the source (`file:line:column`), to a trace, to the log
// lines of an instance. Nothing is loaded from them.
import type { JSX } from "preact";

import { CopyButton } from "../design/Copy.tsx";
import { Text } from "../design/Id.tsx";
import { Icon } from "../design/icons.tsx";
import { session } from "./state.ts";

// Schemes that open a page or an editor; none that could run a script here.
const SCHEMES = /^(https?|vscode|vscode-insiders|vscodium|cursor|zed|idea|jetbrains|subl|txmt|emacs):/i;

/** The link that a template makes, or `null` if the server has none of this name. `values` are encoded as parts of a URL. */
function fill(name: string, values: Readonly<Record<string, string>>): string | null {
  const template = session.value.value?.links[name];
  if (template === undefined || !SCHEMES.test(template)) return null;
  return template.replace(/\{(\w+)\}/g, (whole, part: string) => values[part] ?? whole);
}

export function traceHref(trace: string): string | null {
  return fill("trace", { trace: encodeURIComponent(trace) });
}

export function logsHref(instance: { id: string; key: string; name: string }): string | null {
  const { id, key, name } = instance;
  return fill("logs", { id: encodeURIComponent(id), key: encodeURIComponent(key), name: encodeURIComponent(name) });
}

function placeHref(name: "editor" | "repository", place: string): string | null {
  const [, file = place, line = "1", column = "1"] = /^(.*?):(\d+)(?::(\d+))?$/.exec(place) ?? [];
  return fill(name, { file: file.split("/").map(encodeURIComponent).join("/"), line, column });
}

/** The place itself as a link: into the editor if the server knows one, otherwise into the repository. */
export function Source({ at }: { at: string }): JSX.Element {
  const link = placeHref("editor", at) ?? placeHref("repository", at);
  const shown = (
    <code>
      <Text text={at.replace(/^(.*?:\d+):\d+$/, "$1")} />
    </code>
  );
  return link === null ? (
    shown
  ) : (
    <a class="link" href={link} target="_blank" rel="noreferrer">
      {shown}
    </a>
  );
}

/** The place with a button that copies it, and a link for each template. */
export function SourcePlace({ place }: { place: string }): JSX.Element {
  const links = (["editor", "repository"] as const).flatMap((name) => {
    const link = placeHref(name, place);
    return link === null ? [] : [{ name, link }];
  });
  return (
    <>
      <code>
        <Text text={place} />
      </code>
      <CopyButton text={place} label="Copy the place" />
      {links.map(({ name, link }) => (
        <a key={name} class="link row" href={link} target="_blank" rel="noreferrer">
          <Icon name="external" size={12} /> {name}
        </a>
      ))}
    </>
  );
}
