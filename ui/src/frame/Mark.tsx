// The mark of the product.
import type { JSX } from "preact";

export function Mark({ size = 20 }: { size?: number }): JSX.Element {
  return <img src="./icon.svg" width={size} height={size} alt="" />;
}
