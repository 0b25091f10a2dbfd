import type { JSX } from "preact";
import type { TabProps } from "../InstancePage.tsx";

export default function CompareTab(_: TabProps): JSX.Element {
  return <div />;
}
