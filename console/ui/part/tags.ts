// Tags as people write them: `run=a, team=b`.

export const tagsText = (tags: Record<string, string>): string =>
  Object.entries(tags)
    .map(([name, value]) => `${name}=${value}`)
    .join(", ");

/** Reads what was written. A part without "=" becomes a name without a value, which the gateway refuses. */
export function tagsOf(text: string): Record<string, string> {
  const parts = text
    .split(",")
    .map((part) => part.trim())
    .filter(Boolean);
  return Object.fromEntries(
    parts.map((part) => {
      const at = part.indexOf("=");
      return at < 0 ? [part, ""] : [part.slice(0, at).trim(), part.slice(at + 1).trim()];
    }),
  );
}
