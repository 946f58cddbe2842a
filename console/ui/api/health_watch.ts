// Finds out that the gateway hangs while no frame of a live stream comes: a call to a process that is stopped does not fail, it waits.
import { seeWhetherAlive } from "./client";
import { framesCome } from "./live";

/** Asks the gateway from time to time whether it answers, unless frames show it or the page is hidden. Returns what ends it. */
export function watchHealth(): () => void {
  let isAsking = false;
  const look = async (): Promise<void> => {
    if (isAsking || document.hidden || framesCome()) return;
    isAsking = true;
    await seeWhetherAlive();
    isAsking = false;
  };
  const every = setInterval(look, EVERY_MS);
  return () => clearInterval(every);
}

const EVERY_MS = 5_000;
