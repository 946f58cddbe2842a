// Dates that a person types.
import { preferences } from "../app/preferences";

/** The last millisecond of a day such as `2026-11-22` in the chosen time zone. */
export function dateEnd(date: string): number {
  const end = Date.parse(`${date}T23:59:59.999${preferences.zone.value === "utc" ? "Z" : ""}`);
  return Number.isNaN(end) ? 0 : end;
}

/** The day of a moment as `2026-11-22` in the chosen time zone. */
export function dateOf(at: number | null): string {
  if (at === null) return "";
  const shift = preferences.zone.value === "utc" ? 0 : new Date(at).getTimezoneOffset() * 60_000;
  return new Date(at - shift).toISOString().slice(0, 10);
}
