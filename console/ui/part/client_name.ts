// How clients are called: by the names of their makers where the family is known.

const FAMILIES: [family: RegExp, name: string][] = [
  [/^claude-cli\b/i, "Claude Code"],
  [/^codex/i, "Codex"],
  [/^(async)?openai\/python\b/i, "OpenAI SDK"],
  [/^openai\/js\b/i, "OpenAI SDK"],
  [/^(async)?anthropic\/python\b/i, "Anthropic SDK"],
  [/^anthropic\/js\b/i, "Anthropic SDK"],
  [/^opencode\b/i, "opencode"],
  [/^(qwen-?code|qwencode)\b/i, "Qwen Code"],
  [/^geminicli\b/i, "Gemini CLI"],
  [/^google-genai-sdk\b/i, "Google Gen AI SDK"],
  [/^ai-sdk\b/i, "AI SDK"],
  [/^curl\b/i, "curl"],
];

/** `claude-cli/2.1.329` as `Claude Code 2.1.329`; null if the client did not name itself. A family that is not known keeps its own name. */
export function clientName(client: string | null | undefined): string | null {
  if (!client) return null;
  // Every browser, that of the playground as well, calls itself so.
  if (/^mozilla\//i.test(client)) return "Browser";
  const family = FAMILIES.find(([pattern]) => pattern.test(client));
  // Gemini CLI names its model behind the version.
  const version = /[/ ]v?(\d[\w.+-]*)(\/.*)?$/.exec(client)?.[1];
  return family ? `${family[1]}${version ? ` ${version}` : ""}` : client.replace("/", " ");
}
