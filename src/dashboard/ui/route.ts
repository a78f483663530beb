import { signal } from '@preact/signals'
import { match } from './match.ts'

/** Where the browser is: path and query of the address bar. Everything that a reload must show again is in them. */
export const place = signal(read())

export type Place = { path: string; query: URLSearchParams }

function read(): Place {
  return { path: location.pathname, query: new URLSearchParams(location.search) }
}

/** The parts of the current path that the pattern of a screen names: `keys/:id`. Null on other screens. */
export const partsOf = (pattern: string) => match(`/dashboard/w/:workspace/${pattern}`, place.value.path)

/** Goes to an address of the dashboard. @param options.replaces Back leads to what was before this one. */
export function go(to: string, { replaces = false }: { replaces?: boolean } = {}): void {
  if (replaces) history.replaceState(null, '', to)
  else history.pushState(null, '', to)
  const before = place.value.path
  place.value = read()
  if (before !== place.value.path) arrive()
}

/** Sets parameters of the query; null removes one. */
export function setQuery(change: Record<string, string | null>, { replaces = true } = {}): void {
  const query = new URLSearchParams(place.value.query)
  for (const [name, value] of Object.entries(change))
    if (value === null || value === '') query.delete(name)
    else query.set(name, value)
  go(`${place.value.path}${query.size === 0 ? '' : `?${query}`}`, { replaces })
}

/** The heading of the screen that was gone to has no focus yet. `from` had it when the way there began. */
let arriving: { from: Element | null } | null = null

function arrive(): void {
  scrollTo(0, 0)
  arriving = { from: document.activeElement }
  requestAnimationFrame(finishArriving)
}

/** Gives the focus to the heading of the screen that was gone to: readers of screens hear it, and Tab goes on from there. */
export function finishArriving(): void {
  const heading = document.querySelector('h1')
  if (arriving === null || heading === null) return
  const { from } = arriving
  arriving = null
  // Somebody who went on meanwhile, such as to the search, keeps the focus.
  const { activeElement: now } = document
  if (now === null || now === document.body || now === from) heading.focus({ preventScroll: true })
}

/** Follows links without loading the page again, and the browser's Back and Forward. */
export function startRouting(): void {
  addEventListener('popstate', () => {
    place.value = read()
  })
  document.addEventListener('click', (event) => {
    if (event.defaultPrevented || event.button !== 0) return
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return
    const link = event.target instanceof Element ? event.target.closest('a') : null
    if (link === null || link.target !== '' || link.origin !== location.origin) return
    if (!/^\/dashboard(\/|$)/.test(link.pathname) || link.hasAttribute('download')) return
    event.preventDefault()
    go(link.pathname + link.search)
  })
}
