// The width of an element, as it changes.
import { useLayoutEffect, useState } from "preact/hooks";

/** Returns a reference for the element, and its inner width in pixels; 0 before it is laid out. */
export function useWidth(): [ref: (node: HTMLDivElement | null) => void, width: number] {
  const [node, setNode] = useState<HTMLDivElement | null>(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    if (!node) return;
    const observer = new ResizeObserver(() => setWidth(node.clientWidth));
    observer.observe(node);
    setWidth(node.clientWidth);
    return () => observer.disconnect();
  }, [node]);
  return [setNode, width];
}
