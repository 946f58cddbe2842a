// What pages wait for. At the first appearance of the console, what the address shows is seen once its first answers are there, so
// that nothing moves under the eye. Slow answers are not waited for.
import { signal } from "@preact/signals";

/** True once the page may be seen. */
export const arrived = signal(false);

let waiting = 0;
let begun = false;
let settling: ReturnType<typeof setTimeout> | undefined;

/** Starts to wait for the calls that the page makes from now on. */
export function beginArrival(): void {
  begun = true;
  setTimeout(arrive, WAIT_MS);
}

/** Shows the page. */
export function arrive(): void {
  clearTimeout(settling);
  arrived.value = true;
}

/** True while the page waits for an answer. */
export const isAwaiting = (): boolean => waiting > 0;

/** Counts something that the page waits for. The returned function is called once it is there. */
export function awaited(): () => void {
  clearTimeout(settling);
  waiting += 1;
  let isOver = false;
  return () => {
    if (isOver) return;
    isOver = true;
    waiting -= 1;
    // An answer may lead to the next call.
    if (waiting === 0 && begun && !arrived.value) settling = setTimeout(arrive, SETTLE_MS);
  };
}

/** The page is shown after this time, whatever is missing. */
const WAIT_MS = 400;
const SETTLE_MS = 20;
