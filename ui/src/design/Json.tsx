// The viewer of payloads: folds, searches, wraps, copies and downloads JSON, digit for digit as recorded. Large payloads open
// folded and are drawn as needed; very large ones are a preview and a download.
import type { JSX } from "preact";
import { useMemo, useRef, useState } from "preact/hooks";

import { textOf, unquote } from "../api/json.ts";
import { CopyButton } from "./Copy.tsx";
import { visible } from "./Id.tsx";
import { foldable, linesOf, pathOf, readTree, search, type JsonLine, type JsonNode } from "./json-tree.ts";
import { Icon } from "./icons.tsx";
import { Virtual, type VirtualHandle } from "./Virtual.tsx";

const FOLDED_FROM = 256 * 1024;
const PREVIEW_FROM = 2 * 1024 * 1024;
const PREVIEW_CHARS = 64 * 1024;
/** More lines than this are drawn as needed. */
const VIRTUAL_FROM = 150;
const LINE_PX = 20;
/** Longer strings are cut in the line, and open in full. */
const LONG_STRING = 240;

/** `{"hidden":true,"bytes":n}`, which the server puts in place of payloads that the reader may not see. */
function hiddenBytes(value: unknown): number | null {
  if (typeof value !== "object" || value === null || !("hidden" in value) || value.hidden !== true) return null;
  return "bytes" in value && typeof value.bytes === "number" ? value.bytes : 0;
}

export function bytesText(bytes: number): string {
  if (bytes < 1024) return `${bytes} bytes`;
  return bytes < 1024 * 1024 ? `${(bytes / 1024).toFixed(1)} KiB` : `${(bytes / 1024 / 1024).toFixed(1)} MiB`;
}

/** A payload out of an answer that `get` returned. */
export function Payload({ value, name = "payload" }: { value: unknown; name?: string }): JSX.Element {
  const hidden = hiddenBytes(value);
  if (hidden !== null) {
    return (
      <div class="json">
        <p class="note">Hidden from readers; {bytesText(hidden)}. Operators can see it.</p>
      </div>
    );
  }
  return <Json text={textOf(value)} name={name} />;
}

/** JSON text. Text that is not JSON is shown as text, and said to be so. */
export function Json({ text, name = "payload" }: { text: string; name?: string }): JSX.Element {
  if (text.length > PREVIEW_FROM) return <Preview text={text} name={name} why="It is too large to be shown in full." />;
  return <Tree key={text} text={text} name={name} />;
}

function Tree({ text, name }: { text: string; name: string }): JSX.Element {
  const root = useMemo(() => {
    try {
      return readTree(text);
    } catch (error) {
      return error instanceof Error ? error : new Error(String(error));
    }
  }, [text]);
  if (root instanceof Error) return <Preview text={text} name={name} why={`This is not JSON (${root.message}).`} />;
  return <Viewer root={root} text={text} name={name} />;
}

function Viewer({ root, text, name }: { root: JsonNode; text: string; name: string }): JSX.Element {
  const [folded, setFolded] = useState<ReadonlySet<JsonNode>>(() => new Set(foldable(root, text.length > FOLDED_FROM ? 1 : 4)));
  const [words, setWords] = useState("");
  const [at, setAt] = useState(0);
  const [isWrapped, setWrapped] = useState(false);
  const [opened, setOpened] = useState<{ node: JsonNode; text: string } | null>(null);
  const list = useRef<VirtualHandle>(null);
  const lines = useMemo(() => linesOf(root, folded), [root, folded]);
  const matches = useMemo(() => search(root, text, words), [root, text, words]);
  const matching = useMemo(() => new Set(matches), [matches]);
  const here = matches[at % Math.max(1, matches.length)] ?? null;
  const toggle = (node: JsonNode) => {
    const next = new Set(folded);
    if (!next.delete(node)) next.add(node);
    setFolded(next);
  };
  const step = (to: number) => {
    const index = (to + matches.length) % Math.max(1, matches.length);
    const node = matches[index];
    setAt(index);
    if (node === undefined) return;
    const next = new Set(folded);
    for (let up = node.parent; up !== null; up = up.parent) next.delete(up);
    setFolded(next);
    const line = linesOf(root, next).findIndex((each) => each.node === node);
    requestAnimationFrame(() => list.current?.scrollTo(line, "center"));
  };
  const draw = (line: JsonLine) => (
    <Line
      line={line}
      text={text}
      isFolded={folded.has(line.node)}
      isMatch={matching.has(line.node)}
      isHere={line.node === here}
      onToggle={toggle}
      onOpen={(node, inner) => setOpened({ node, text: inner })}
    />
  );
  const isLong = lines.length > VIRTUAL_FROM;
  return (
    <div class={`json ${isWrapped && !isLong ? "wrap" : ""}`}>
      {root.children.length > 0 && (
        <Tools
          words={words}
          found={matches.length}
          at={at}
          name={name}
          text={text}
          canWrap={!isLong}
          isWrapped={isWrapped}
          onWords={(next) => {
            setWords(next);
            setAt(0);
          }}
          onStep={(by) => step(at + by)}
          onWrap={() => setWrapped(!isWrapped)}
          onFold={() => setFolded(folded.size > 0 ? new Set() : new Set(foldable(root, 1)))}
          isFolded={folded.size > 0}
        />
      )}
      {isLong ? (
        <Virtual class="lines tall" count={lines.length} rowHeight={LINE_PX} handle={list} keyOf={(index) => index} label={name}>
          {(index) => draw(lines[index] as JsonLine)}
        </Virtual>
      ) : (
        <div class="lines" tabIndex={0} role="group" aria-label={name}>
          {lines.map((line, index) => (
            <div key={index}>{draw(line)}</div>
          ))}
        </div>
      )}
      {opened !== null && <Inner of={opened} onClose={() => setOpened(null)} />}
    </div>
  );
}

function Tools(props: {
  words: string;
  found: number;
  at: number;
  name: string;
  text: string;
  canWrap: boolean;
  isWrapped: boolean;
  isFolded: boolean;
  onWords: (words: string) => void;
  onStep: (by: number) => void;
  onWrap: () => void;
  onFold: () => void;
}): JSX.Element {
  return (
    <div class="tools">
      <input
        class="field"
        type="search"
        placeholder="Search"
        aria-label={`Search in ${props.name}`}
        value={props.words}
        onInput={(event) => props.onWords(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key !== "Enter") return;
          event.preventDefault();
          props.onStep(event.shiftKey ? -1 : props.at === 0 && !event.repeat ? 0 : 1);
        }}
      />
      {props.words !== "" && (
        <>
          <span class="count" role="status">
            {props.found === 0 ? "none" : `${props.at + 1} of ${props.found}`}
          </span>
          <button type="button" class="button quiet small" onClick={() => props.onStep(1)}>
            Next
          </button>
        </>
      )}
      <button type="button" class="button quiet small" onClick={props.onFold}>
        {props.isFolded ? "Unfold all" : "Fold all"}
      </button>
      {props.canWrap && (
        <button type="button" class="button quiet small" aria-pressed={props.isWrapped} onClick={props.onWrap}>
          Wrap
        </button>
      )}
      <CopyButton text={props.text} label="Copy all" />
      <Download text={props.text} name={props.name} />
    </div>
  );
}

function Line(props: {
  line: JsonLine;
  text: string;
  isFolded: boolean;
  isMatch: boolean;
  isHere: boolean;
  onToggle: (node: JsonNode) => void;
  onOpen: (node: JsonNode, inner: string) => void;
}): JSX.Element {
  const { node, part } = props.line;
  const hasFold = node.children.length > 0 && part === "open";
  const own = props.text.slice(node.start, node.end);
  const [open, close] = node.kind === "object" ? ["{", "}"] : ["[", "]"];
  const isLast = node.parent === null || node.parent.children.at(-1) === node;
  const ends = part === "close" || node.children.length === 0 || props.isFolded;
  return (
    <div class={`line ${props.isMatch && part === "open" ? "match" : ""} ${props.isHere && part === "open" ? "at" : ""}`}>
      <span style={{ paddingInlineStart: `${Math.min(node.depth, 40) * 0.9}rem` }} />
      {hasFold ? (
        <button
          type="button"
          class="fold"
          aria-expanded={!props.isFolded}
          aria-label={`${pathOf(node)}`}
          onClick={() => props.onToggle(node)}
        >
          <Icon name={props.isFolded ? "chevronRight" : "chevronDown"} size={12} />
        </button>
      ) : (
        <span class="fold" />
      )}
      <span class="text">
        {node.key !== null && part === "open" && (
          <>
            <span class="key">{visible(node.key)}</span>
            <span class="punct">: </span>
          </>
        )}
        {node.kind === "object" || node.kind === "array" ? (
          <span class="punct">
            {part === "close" ? close : open}
            {part === "open" && props.isFolded && (
              <button type="button" class="more" onClick={() => props.onToggle(node)}>
                {node.children.length.toLocaleString("en")}
              </button>
            )}
            {part === "open" && ends && close}
          </span>
        ) : (
          <Scalar node={node} own={own} onOpen={props.onOpen} />
        )}
        {ends && !isLast && <span class="punct">,</span>}
      </span>
      {part === "open" && (
        <span class="act">
          <CopyButton text={pathOf(node)} label={`Copy the path ${pathOf(node)}`} kind="quiet small icon" />
          <CopyButton text={own} label="Copy the value" kind="quiet small icon" />
        </span>
      )}
    </div>
  );
}

function Scalar({
  node,
  own,
  onOpen,
}: {
  node: JsonNode;
  own: string;
  onOpen: (node: JsonNode, inner: string) => void;
}): JSX.Element {
  if (node.kind !== "string") return <span class={node.kind}>{own}</span>;
  const inner = own.length > 2 && (own.length > LONG_STRING || /\\n|^"\s*[[{]/.test(own)) ? unquote(own) : null;
  return (
    <>
      <span class="string">{visible(own.length > LONG_STRING ? `${own.slice(0, LONG_STRING)}…` : own)}</span>
      {inner !== null && (
        <button type="button" class="more" onClick={() => onOpen(node, inner)}>
          {/^\s*[[{]/.test(inner) ? "open as JSON" : "open"}
        </button>
      )}
    </>
  );
}

/** A string of a payload, opened: as JSON if it holds JSON, otherwise as lines. */
function Inner({ of, onClose }: { of: { node: JsonNode; text: string }; onClose: () => void }): JSX.Element {
  return (
    <div class="note stack">
      <div class="row">
        <code>{pathOf(of.node)}</code>
        <button type="button" class="button quiet small push" onClick={onClose}>
          Close
        </button>
      </div>
      {/^\s*[[{]/.test(of.text) ? (
        <Json text={of.text} name={pathOf(of.node)} />
      ) : (
        <pre class="plain">{visible(of.text.slice(0, PREVIEW_CHARS), true)}</pre>
      )}
    </div>
  );
}

function Preview({ text, name, why }: { text: string; name: string; why: string }): JSX.Element {
  return (
    <div class="json wrap">
      <div class="tools">
        <span class="note">
          {why} {bytesText(new Blob([text]).size)}.
        </span>
        <span class="push" />
        <CopyButton text={text} label="Copy all" />
        <Download text={text} name={name} />
      </div>
      <pre class="lines plain" tabIndex={0}>
        {visible(text.slice(0, PREVIEW_CHARS), true)}
        {text.length > PREVIEW_CHARS ? "…" : ""}
      </pre>
    </div>
  );
}

function Download({ text, name }: { text: string; name: string }): JSX.Element {
  return (
    <button
      type="button"
      class="button quiet small icon"
      aria-label="Download"
      title="Download"
      onClick={() => download(`${name}.json`, text, "application/json")}
    >
      <Icon name="download" size={14} />
    </button>
  );
}

/** Saves text as a file. */
export function download(name: string, text: string, type: string): void {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name.replace(/[^\w.-]+/g, "_");
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
