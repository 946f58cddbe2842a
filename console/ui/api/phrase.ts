// What a person asks of a model in words, such as "images under $2", as filters of the catalog.

/** The filters that a text names, and the words that are left to search for. */
export type Phrase = { filters: Record<string, string>; rest: string };

const WORDS: [RegExp, string, string][] = [
  ["images?|vision|pictures?", "capability", "vision"],
  ["tools?", "capability", "tools"],
  ["reasoning|thinking", "capability", "reasoning"],
  ["audio", "capability", "audio"],
  ["embeddings?", "operation", "embeddings"],
  ["speech", "operation", "speech"],
  ["transcriptions?", "operation", "transcription"],
  ["proven|tested", "proven", "true"],
  ["priced", "priced", "true"],
].map(([words = "", field = "", value = ""]) => [word(words), field, value]);

/** Words between the others that say nothing by themselves. */
const FILLERS = word("with|and|for|that|takes?|models?|a|an");

/** A pattern of whole words: names of models contain some of them. */
function word(words: string): RegExp {
  return new RegExp(`(?<![^\\s,])(?:${words})(?![^\\s,])`, "g");
}

const PRICE = /(?<![^\s,])(?:(?:under|below|up to|at most|cheaper than|<=?) ?\$? ?|\$)(\d+(?:\.\d+)?)(?![^\s,])/g;
const CONTEXT = /(?<![^\s,])(?:(?:over|above|at least|from|>=?) ?)?(\d+(?:\.\d+)?) ?([km])(?: tokens)?(?: of)?(?: context)?(?![^\s,])/g;

/** Reads a text. A text without any filter is searched for as it stands. */
export function phraseOf(text: string): Phrase {
  const whole = text.trim();
  const filters: Record<string, string> = {};
  const add = (field: string, value: string): string => {
    const before = filters[field];
    filters[field] = field === "capability" && before && !before.split(",").includes(value) ? `${before},${value}` : value;
    return " ";
  };
  let rest = whole.toLowerCase();
  rest = rest.replace(PRICE, (_, amount: string) => add("price_max", amount));
  rest = rest.replace(CONTEXT, (_, amount: string, unit: string) =>
    add("context_min", String(Number(amount) * (unit === "m" ? 1e6 : 1e3))),
  );
  for (const [pattern, field, value] of WORDS) rest = rest.replace(pattern, () => add(field, value));
  if (Object.keys(filters).length === 0) return { filters, rest: whole };
  return {
    filters,
    rest: rest
      .replace(FILLERS, " ")
      .replace(/[\s,]+/g, " ")
      .trim(),
  };
}
