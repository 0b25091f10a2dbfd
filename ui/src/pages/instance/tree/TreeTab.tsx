import type { JSX } from "preact";
import type { TabProps } from "../InstancePage.tsx";

export default function TreeTab(_: TabProps): JSX.Element {
  return <div />;
}
