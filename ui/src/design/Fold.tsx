// A list whose rows open in place. The whole head of a row can be clicked; links and buttons in it keep working.
import type { ComponentChildren, JSX } from "preact";
import { useId } from "preact/hooks";

import "./fold.css";
import { Icon } from "./icons.tsx";
import { useKeys } from "./keys.ts";

export function Fold(props: {
  isOpen: boolean;
  onToggle: () => void;
  /** Names the row; stands in the button. */
  title: ComponentChildren;
  /** The rest of the head. */
  children?: ComponentChildren;
  body: () => ComponentChildren;
  class?: string;
}): JSX.Element {
  const id = useId();
  return (
    <li class={`fold ${props.isOpen ? "open" : ""} ${props.class ?? ""}`}>
      <div class="fold-head">
        <button
          type="button"
          class="fold-toggle"
          data-row
          aria-expanded={props.isOpen}
          aria-controls={props.isOpen ? id : undefined}
          onClick={props.onToggle}
        >
          <Icon name={props.isOpen ? "chevronDown" : "chevronRight"} size={14} />
          {props.title}
        </button>
        {props.children}
      </div>
      {props.isOpen && (
        <div class="fold-body" id={id}>
          {props.body()}
        </div>
      )}
    </li>
  );
}

/** `j` and `k` move between the rows of a page: elements with `data-row`, in their order. `Enter` then opens by itself. */
export function useRowKeys(): void {
  const step = (by: number) => {
    const rows = [...document.querySelectorAll<HTMLElement>("main [data-row]")];
    const at = rows.findIndex(
      (row) => row === document.activeElement || row.parentElement?.contains(document.activeElement) === true,
    );
    const next = at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(Math.max(at + by, 0), rows.length - 1);
    rows[next]?.focus();
    rows[next]?.scrollIntoView({ block: "nearest" });
  };
  useKeys(
    [
      { keys: "j", does: "Next row", act: () => step(1), group: "This page" },
      { keys: "k", does: "Previous row", act: () => step(-1), group: "This page" },
    ],
    [],
  );
}
