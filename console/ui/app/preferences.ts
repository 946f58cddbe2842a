// What a person prefers, kept in this browser. Nothing else is ever stored there.
import { effect, type Signal, signal } from "@preact/signals";

const CHOICES = {
  theme: ["system", "light", "dark"],
  density: ["comfortable", "compact"],
  zone: ["utc", "local"],
  keys: ["on", "off"],
} as const;

type Choices = typeof CHOICES;
export type Preferences = { [Name in keyof Choices]: Signal<Choices[Name][number]> };

const NAME = "llmgw.console";

function stored(): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(localStorage.getItem(NAME) ?? "{}");
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

function choice<Name extends keyof Choices>(name: Name, given: Record<string, unknown>): Signal<Choices[Name][number]> {
  const all: readonly Choices[Name][number][] = CHOICES[name];
  return signal(all.find((value) => value === given[name]) ?? all[0]) as Signal<Choices[Name][number]>;
}

const given = typeof localStorage === "undefined" ? {} : stored();

export const preferences: Preferences = {
  theme: choice("theme", given),
  density: choice("density", given),
  zone: choice("zone", given),
  keys: choice("keys", given),
};

/** True if the page is dark now. */
export const isDark = (): boolean =>
  preferences.theme.value === "system" ? matchMedia("(prefers-color-scheme: dark)").matches : preferences.theme.value === "dark";

/** Applies the preferences to the document, and stores each change. */
export function startPreferences(): void {
  effect(() => {
    const root = document.documentElement;
    const { theme, density, zone, keys } = preferences;
    if (theme.value === "system") delete root.dataset.theme;
    else root.dataset.theme = theme.value;
    root.dataset.density = density.value;
    const values = { theme: theme.value, density: density.value, zone: zone.value, keys: keys.value };
    try {
      localStorage.setItem(NAME, JSON.stringify(values));
    } catch {
      // Storage may be forbidden: the preferences then last as long as the page.
    }
  });
}
