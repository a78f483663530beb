import type { Locator, Page } from 'playwright-core'

const FOCUSED = `(() => {
  const { activeElement: at } = document
  return at.tagName.toLowerCase() + ' ' + (at.ariaLabel ?? at.textContent ?? '').trim().replace(/\\s+/g, ' ').slice(0, 30)
})()`

/** A person at a page with nothing but the keys. */
export class Keyboard {
  constructor(private readonly page: Page) {}

  async press(...keys: string[]): Promise<void> {
    for (const key of keys) await this.page.keyboard.press(key)
  }

  async type(text: string): Promise<void> {
    await this.page.keyboard.type(text)
  }

  /**
   * Goes on with Tab until the element has the focus.
   * @param options.max More presses than a person has patience for.
   * @throws Error that says which elements had the focus on the way.
   */
  async tabTo(to: Locator, { key = 'Tab', max = 40 }: { key?: 'Tab' | 'Shift+Tab'; max?: number } = {}) {
    await to.waitFor()
    const passed: string[] = []
    while (!(await isFocused(to))) {
      if (passed.length === max) throw new Error(`${to} is not among ${passed.join(' | ')}`)
      await this.press(key)
      passed.push(await this.page.evaluate(FOCUSED))
    }
  }

  /** Goes to a field and types over what it holds. */
  async fill(field: Locator, text: string): Promise<void> {
    await this.tabTo(field)
    await this.press('Control+a')
    await this.type(text)
  }

  /** Goes to a list and chooses the option whose name begins with the text. */
  async choose(list: Locator, name: string): Promise<void> {
    await this.tabTo(list)
    await this.type(name)
  }

  /** Goes to a button or link and presses it. */
  async enter(to: Locator): Promise<void> {
    await this.tabTo(to)
    await this.press('Enter')
  }
}

export const isFocused = (element: Locator): Promise<boolean> =>
  element.evaluate((each) => each === each.ownerDocument.activeElement)
