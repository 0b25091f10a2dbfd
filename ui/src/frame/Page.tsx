// The head of a page: its title, which is also the tab's, and what can be done on it.
import type { ComponentChildren, JSX } from "preact";
import { useEffect } from "preact/hooks";

export function Page(props: {
  title: string;
  /** Shown in place of the title, if it is more than text. */
  heading?: ComponentChildren;
  /** Beside the title. */
  beside?: ComponentChildren;
  actions?: ComponentChildren;
  children: ComponentChildren;
  /** Fills the window, with parts that scroll for themselves. */
  isFull?: boolean;
}): JSX.Element {
  useEffect(() => {
    document.title = `${props.title} · Perennial`;
  }, [props.title]);
  return (
    <div class={`page ${props.isFull === true ? "full" : ""}`}>
      <header class="page-head">
        <h1 tabIndex={-1}>{props.heading ?? props.title}</h1>
        {props.beside}
        {props.actions !== undefined && <div class="row wrap push">{props.actions}</div>}
      </header>
      {props.children}
    </div>
  );
}
