// The recorded sides of an exchange: what the client and the upstreams sent, with the times of its pieces.
import type { RecordedSide } from "../api/types";
import { bytes, duration, plural } from "./format";

const SIDES: Record<string, string> = {
  client_request: "From the client",
  upstream_request: "To the upstream",
  upstream_response: "From the upstream",
  client_response: "To the client",
};

export const titleOf = ({ side, attempt }: RecordedSide): string =>
  `${SIDES[side] ?? side}${attempt === null ? "" : `, attempt ${attempt}`}`;

/** JSON with a line for each member; other texts as they are. */
export function lined(text: string): string[] {
  try {
    return JSON.stringify(JSON.parse(text), null, 1).split("\n");
  } catch {
    return text.split("\n");
  }
}

/** A body as lines; of bytes that are not text, their number. */
const bodyOf = ({ body, base64, bytes: length }: RecordedSide): string[] => (base64 ? [`${bytes(length)} that are not text`] : lined(body));

/** A side as lines: its head, an empty line, its body. */
export const linesOf = (of: RecordedSide): string[] => [...of.head.split("\n"), "", ...bodyOf(of)];

/** A text that scrolls by itself. */
export function CodeText({ text, label }: { text: string; label: string }) {
  return (
    <pre class="code" role="group" aria-label={label} tabIndex={0}>
      <code>{text}</code>
    </pre>
  );
}

const TIMES_SHOWN = 12;

/** A side with the arrival times of the pieces of its body. Raw, JSON stays as it came. */
export function RecordedBytes({ of, isRaw = false }: { of: RecordedSide; isRaw?: boolean }) {
  const { pieces_us: times } = of;
  const shown = times.slice(0, TIMES_SHOWN).map((us) => duration(us));
  return (
    <section aria-label={titleOf(of)}>
      <h3 class="group-title">{titleOf(of)}</h3>
      <p class="help">
        {plural(times.length, "piece")}
        {times.length > 0 && ` at ${shown.join(", ")}${times.length > TIMES_SHOWN ? `, … ${duration(times.at(-1))}` : ""}`},{" "}
        {bytes(of.bytes)}
        {of.cut && ", of which only the beginning is kept"}
      </p>
      <CodeText text={isRaw ? `${of.head}\n\n${of.body}` : linesOf(of).join("\n")} label={titleOf(of)} />
    </section>
  );
}
