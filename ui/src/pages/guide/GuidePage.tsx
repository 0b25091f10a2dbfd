// The guide's page of errors, which comes with the dashboard: what each code means, why it happens, and what to do.
import type { JSX } from "preact";

import errors from "../../../../docs/src/errors.md?raw";
import { Page } from "../../frame/Page.tsx";
import { Empty } from "../../design/Problem.tsx";
import { href, place } from "../../router/router.ts";
import { blocksOf, type Block, type Span } from "./markdown.ts";

const SECTION = /^### (PER-\d{4}) (.*)$/gm;

/** The codes with their titles, in the order of the page. */
function codes(): [string, string][] {
  return [...errors.matchAll(SECTION)].map((found) => [found[1] ?? "", found[2] ?? ""]);
}

/** The text about a code. */
function sectionOf(code: string): string | null {
  const begin = errors.indexOf(`\n### ${code} `);
  if (begin < 0) return null;
  const end = errors.slice(begin + 1).search(/\n##+ /);
  return end < 0 ? errors.slice(begin + 1) : errors.slice(begin + 1, begin + 1 + end);
}

export default function GuidePage(): JSX.Element {
  const code = place.value.path[1] ?? null;
  return code === null ? <Contents /> : <OneCode code={code} />;
}

function Contents(): JSX.Element {
  return (
    <Page title="Errors by code">
      <ul class="guide-codes">
        {codes().map(([code, title]) => (
          <li key={code}>
            <a class="link" href={href(["guide", code])}>
              <code>{code}</code> {title}
            </a>
          </li>
        ))}
      </ul>
    </Page>
  );
}

function OneCode({ code }: { code: string }): JSX.Element {
  const section = sectionOf(code);
  const [heading, ...blocks] = section === null ? [] : blocksOf(section);
  if (heading?.kind !== "heading") {
    return (
      <Page title="Errors by code">
        <Empty title="The guide has no such code">
          <p>
            <a class="link" href={href(["guide"])}>
              All codes
            </a>
          </p>
        </Empty>
      </Page>
    );
  }
  return (
    <Page title={heading.text}>
      <div class="guide stack">
        {blocks.map((block, at) => (
          <Drawn key={at} block={block} />
        ))}
        <p>
          <a class="link" href={href(["guide"])}>
            All codes
          </a>
        </p>
      </div>
    </Page>
  );
}

function Drawn({ block }: { block: Block }): JSX.Element {
  switch (block.kind) {
    case "heading":
      return <h2>{block.text}</h2>;
    case "code":
      return <pre>{block.text}</pre>;
    case "list":
      return (
        <ul>
          {block.items.map((item, at) => (
            <li key={at}>
              <Spans of={item} />
            </li>
          ))}
        </ul>
      );
    case "paragraph":
      return (
        <p>
          <Spans of={block.spans} />
        </p>
      );
  }
}

function Spans({ of }: { of: Span[] }): JSX.Element {
  return (
    <>
      {of.map((span, at) => {
        if (span.kind === "code") return <code key={at}>{span.text}</code>;
        if (span.kind === "bold") return <b key={at}>{span.text}</b>;
        const code = span.kind === "link" ? /#(per-\d{4})/i.exec(span.target ?? "")?.[1]?.toUpperCase() : undefined;
        // Other pages of the guide are not in the binary.
        return code === undefined ? (
          <span key={at}>{span.text}</span>
        ) : (
          <a key={at} class="link" href={href(["guide", code])}>
            {span.text}
          </a>
        );
      })}
    </>
  );
}
