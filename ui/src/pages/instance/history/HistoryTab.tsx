import type { JSX } from "preact";
import type { TabProps } from "../InstancePage.tsx";

export default function HistoryTab(_: TabProps): JSX.Element {
  return <div />;
}
