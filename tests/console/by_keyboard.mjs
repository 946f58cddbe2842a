// What a person without a pointer does: reaches a control by Tab, types, presses Enter.

/** Presses a key until the element has the focus. */
export async function tabTo(page, locator, key = "Tab") {
  await locator.waitFor();
  for (let n = 0; n < 120; n += 1) {
    if (await locator.evaluate((node) => node === document.activeElement)) return;
    await page.keyboard.press(key);
  }
  throw new Error(`${locator} cannot be reached by ${key}`);
}

/** Reaches a field and types into it in place of what it holds. */
export async function type(page, label, text, key = "Tab") {
  await tabTo(page, label, key);
  await page.keyboard.press("Control+a");
  await page.keyboard.type(text);
}

/** Reaches a field that searches on the server and chooses the first object that fits a text. */
export async function choose(page, label, text) {
  const field = page.getByRole("combobox", { name: label, exact: true });
  await type(page, field, text);
  await page.getByRole("option", { name: text }).first().waitFor();
  await page.keyboard.press("Enter");
  await page.waitForFunction(([node, text]) => node.value === text, [await field.elementHandle(), text]);
}

/** Reaches a control and presses it. */
export async function press(page, locator, key = "Tab") {
  await tabTo(page, locator, key);
  await page.keyboard.press("Enter");
}

/** Waits until the head of a step of the set-up has the focus: each finished step leads to the next open one. */
export const arrived = (page, step) => page.waitForFunction((id) => document.activeElement?.id === id, `step-${step}`);

/** Counts the events of a pointer on each page of a context; `pointerEvents` reads the number. */
export const watchPointer = (context) =>
  context.addInitScript(() => {
    globalThis.pointerEvents = 0;
    for (const name of ["pointerdown", "mousedown", "touchstart"]) addEventListener(name, () => (globalThis.pointerEvents += 1), true);
  });
export const pointerEvents = (page) => page.evaluate(() => globalThis.pointerEvents);
